// WebSockets: what the server sends goes out in order; what clients say is read and dropped.
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket.hpp>
#include <deque>

#include "base/error.hpp"
#include "server/http_core.hpp"

namespace rocm_sd::server {
namespace {

namespace websocket = beast::websocket;

constexpr size_t kMaxMessage = 64u << 10;             // of a client
constexpr size_t kMaxWaitingFrames = 4;               // previews that wait; older ones are dropped
constexpr auto kPingTime = std::chrono::seconds(60);  // a client that answers no ping for so long has gone

class SocketSession : public Connection, public std::enable_shared_from_this<SocketSession> {
 public:
  SocketSession(std::shared_ptr<HttpCore> core, beast::tcp_stream stream)
      : core_(std::move(core)), socket_(std::move(stream)) {
    core_->add(this);
  }
  ~SocketSession() override { core_->remove(this); }

  void accept(const http::request<http::string_body>& asked, std::shared_ptr<const HttpRequest> request);

  bool is_socket() const override { return true; }
  void close() override {
    const auto keep = shared_from_this();
    core_->remove(this);
    open_ = false;
    Failure ignored;
    beast::get_lowest_layer(socket_).socket().close(ignored);
    for (auto& gone : std::exchange(gone_, {})) gone();
  }

  // From SocketHandle.
  void push(bool binary, std::string bytes) {
    if (!open_ || ending_) return;
    if (unsent_ > kMaxUnsent) return close();
    if (binary) drop_old_frames();
    unsent_ += bytes.size();
    out_.push_back({binary, std::move(bytes)});
    if (!writing_) write_next();
  }
  void end() {
    ending_ = true;
    if (open_ && !writing_ && out_.empty()) say_goodbye();
  }
  void on_gone(std::function<void()> gone) {
    if (!open_) return gone();
    gone_.push_back(std::move(gone));
  }

 private:
  struct Message {
    bool binary = false;
    std::string bytes;
  };

  // The one that is on its way stays.
  void drop_old_frames() {
    const auto waiting = [this] {
      return std::count_if(out_.begin(), out_.end(), [](const Message& m) { return m.binary; });
    };
    while (waiting() >= static_cast<ptrdiff_t>(kMaxWaitingFrames)) {
      const auto oldest = std::find_if(out_.begin() + (writing_ ? 1 : 0), out_.end(),
                                       [](const Message& m) { return m.binary; });
      if (oldest == out_.end()) return;
      unsent_ -= oldest->bytes.size();
      out_.erase(oldest);
    }
  }

  void read_next() {
    socket_.async_read(buffer_, [self = shared_from_this()](Failure error, size_t) {
      if (error) return self->close();
      self->buffer_.clear();
      self->read_next();
    });
  }

  void write_next() {
    writing_ = true;
    socket_.binary(out_.front().binary);
    socket_.async_write(net::buffer(out_.front().bytes), [self = shared_from_this()](Failure error, size_t) {
      self->writing_ = false;
      if (error) return self->close();
      self->unsent_ -= self->out_.front().bytes.size();
      self->out_.pop_front();
      if (!self->out_.empty()) return self->write_next();
      if (self->ending_) self->say_goodbye();
    });
  }

  // The read ends with it. Once: Beast keeps a second close for ever where the first is still under way, and
  // this session with it.
  void say_goodbye() {
    if (std::exchange(goodbye_, true)) return;
    socket_.async_close(websocket::close_code::normal, [self = shared_from_this()](Failure) {});
  }

  const std::shared_ptr<HttpCore> core_;
  websocket::stream<beast::tcp_stream> socket_;
  beast::flat_buffer buffer_;
  std::deque<Message> out_;
  size_t unsent_ = 0;
  bool open_ = false, writing_ = false, ending_ = false, goodbye_ = false;
  std::vector<std::function<void()>> gone_;
};

// What handlers hold.
class SocketHandle : public Socket {
 public:
  SocketHandle(std::weak_ptr<SocketSession> session, std::shared_ptr<HttpCore> core)
      : session_(std::move(session)), core_(std::move(core)) {}
  ~SocketHandle() override {
    over([](SocketSession& s) { s.end(); });
  }

  void send_text(std::string text) override {
    over([text = std::move(text)](SocketSession& s) mutable { s.push(false, std::move(text)); });
  }
  void send_binary(std::string bytes) override {
    over([bytes = std::move(bytes)](SocketSession& s) mutable { s.push(true, std::move(bytes)); });
  }
  void close() override {
    over([](SocketSession& s) { s.end(); });
  }
  void on_gone(std::function<void()> gone) override {
    net::post(core_->io, [weak = session_, gone = std::move(gone)] {
      if (const auto session = weak.lock())
        session->on_gone(gone);
      else
        gone();
    });
  }

 private:
  template <class Work>
  void over(Work work) {
    net::post(core_->io, [weak = session_, work = std::move(work)]() mutable {
      if (const auto session = weak.lock()) work(*session);
    });
  }

  const std::weak_ptr<SocketSession> session_;
  const std::shared_ptr<HttpCore> core_;
};

void SocketSession::accept(const http::request<http::string_body>& asked,
                           std::shared_ptr<const HttpRequest> request) {
  beast::get_lowest_layer(socket_).expires_never();
  websocket::stream_base::timeout timeout;
  timeout.handshake_timeout = core_->limits.header_time;
  timeout.idle_timeout = kPingTime;
  timeout.keep_alive_pings = true;
  socket_.set_option(timeout);
  socket_.read_message_max(kMaxMessage);
  socket_.async_accept(asked, [self = shared_from_this(), request = std::move(request)](Failure error) {
    if (error) return self->close();
    self->open_ = true;
    self->read_next();
    auto handle = std::make_shared<SocketHandle>(self, self->core_);
    net::post(self->core_->handlers, [core = self->core_, request, handle = std::move(handle)]() mutable {
      core->callbacks.open(request, std::move(handle));
    });
  });
}

}  // namespace

void begin_socket(std::shared_ptr<HttpCore> core, beast::tcp_stream stream,
                  const http::request<http::string_body>& asked, std::shared_ptr<const HttpRequest> request) {
  std::make_shared<SocketSession>(std::move(core), std::move(stream))->accept(asked, std::move(request));
}

}  // namespace rocm_sd::server
