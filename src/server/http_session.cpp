// One connection's requests and their answers: HTTP/1.1 with limits on what clients send and how long they
// take.
#include <sys/socket.h>
#include <time.h>

#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <deque>

#include "base/error.hpp"
#include "server/access.hpp"
#include "server/http_core.hpp"

namespace rocm_sd::server {
namespace {

using std::chrono::seconds;

constexpr uint64_t kLeastBytesPerSecond = 64 << 10;  // of a body that comes, and of a response that goes
constexpr size_t kSocketKey = 24;                    // base64 of 16 bytes
constexpr auto kLingerTime = seconds(2);             // for what a refused client is still sending

// A header's value that comes from outside may not begin another header.
std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\r' || c == '\n' || c == '\0') c = ' ';
  return text;
}

std::string date() {
  char text[64];
  const time_t now = ::time(nullptr);
  tm parts;
  gmtime_r(&now, &parts);
  strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return text;
}

// One connection. Everything runs on the thread of connections.
class Session : public Connection, public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<HttpCore> server, tcp::socket socket, std::string client)
      : server_(std::move(server)), stream_(std::move(socket)), client_(std::move(client)) {
    server_->add(this);
  }
  ~Session() override { server_->remove(this); }

  void read_head() {
    state_ = State::kHead;
    since_ = std::chrono::steady_clock::now();
    ++exchange_;
    parser_.emplace();
    parser_->header_limit(server_->limits.header_bytes);
    parser_->body_limit(server_->limits.image_body_bytes);
    stream_.expires_after(first_ ? server_->limits.header_time : server_->limits.idle_time);
    http::async_read_header(stream_, buffer_, *parser_,
                            [self = shared_from_this()](Failure error, size_t) { self->on_head(error); });
  }

  std::optional<std::chrono::steady_clock::time_point> waits_since() const override {
    if (state_ != State::kHead) return std::nullopt;
    return since_;
  }
  void close() override {
    const auto keep = shared_from_this();
    self_.reset();
    server_->remove(this);
    Failure ignored;
    stream_.socket().close(ignored);
    tell_gone();
  }

  // From SessionReply.
  void send(uint64_t exchange, HttpResponse response) {
    if (exchange != exchange_ || state_ != State::kHandling) return;
    queue_head(response, /*streams=*/false);
    if (!is_head_) queue(std::move(response.body));
    finish_response();
  }
  void begin(uint64_t exchange, HttpResponse head) {
    if (exchange != exchange_ || state_ != State::kHandling) return;
    state_ = State::kStreaming;
    queue_head(head, /*streams=*/true);
  }
  void write(uint64_t exchange, const std::string& part) {
    if (exchange != exchange_ || state_ != State::kStreaming || part.empty() || is_head_) return;
    if (unsent_ > kMaxUnsent) return close();
    char size[20];
    snprintf(size, sizeof(size), "%zx\r\n", part.size());
    queue(chunked_ ? size + part + "\r\n" : part);
  }
  void end(uint64_t exchange) {
    if (exchange != exchange_ || state_ != State::kStreaming) return;
    if (chunked_ && !is_head_) queue("0\r\n\r\n");
    finish_response();
  }
  void on_gone(uint64_t exchange, std::function<void()> gone) {
    if (exchange != exchange_ || (state_ != State::kHandling && state_ != State::kStreaming)) return;
    if (!stream_.socket().is_open()) return gone();
    gone_.push_back(std::move(gone));
  }

 private:
  enum class State { kHead, kBody, kHandling, kStreaming, kFinishing, kLinger };

  void on_head(Failure error) {
    if (error) return on_read_error(error);
    auto request = std::make_shared<HttpRequest>();
    const auto& message = parser_->get();
    request->method = std::string(message.method_string());
    request->client = client_;
    for (const auto& field : message.base()) {
      std::string name(field.name_string());
      for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
      request->headers.emplace_back(std::move(name), std::string(field.value()));
    }
    request_ = request;
    is_head_ = request->method == "HEAD";
    chunked_ = message.version() >= 11;
    keep_alive_ = message.keep_alive();
    const std::string target(message.target());
    request->path = target.substr(0, target.find_first_of("?#"));  // an error has the form of its API
    if (target.size() > server_->limits.target_bytes)
      return refuse({414, "uri_too_long",
                     concat("expected a path of at most ", server_->limits.target_bytes, " bytes"), ""});
    if (request->headers.size() > server_->limits.header_fields)
      return refuse({431, "too_many_headers",
                     concat("expected at most ", server_->limits.header_fields, " header fields"), ""});
    if (!parse_target(target, *request))
      return refuse({400, "invalid_path", concat("not a path: ", printable(target)), ""});
    if (auto response = server_->callbacks.check_head(*request)) return refuse(std::move(*response));
    if (is_upgrade(message) && server_->callbacks.takes_socket(*request)) return upgrade();
    const uint64_t limit = server_->callbacks.body_limit(*request);
    const auto length = parser_->content_length();
    if (length && *length > limit)
      return refuse({413, "body_too_large",
                     concat("a body of ", *length, " bytes, at most ", limit, " are accepted"), ""});
    parser_->body_limit(limit);
    read_body(length ? *length : limit);
  }

  static bool is_upgrade(const http::request<http::string_body>& message) {
    return message.method() == http::verb::get &&
           beast::iequals(message[http::field::upgrade], "websocket") &&
           http::token_list(message[http::field::connection]).exists("upgrade") &&
           message[http::field::sec_websocket_key].size() == kSocketKey;
  }
  // The connection goes on as a WebSocket, and this session ends.
  void upgrade() {
    if (!server_->takes_another_socket())
      return refuse({503, "too_many_connections", "too many WebSockets are open", ""});
    HttpResponse response{101, "", "", {}};
    server_->callbacks.finish(*request_, response);
    state_ = State::kFinishing;
    stream_.expires_never();
    begin_socket(server_, std::move(stream_), parser_->get(), request_);
  }

  void read_body(uint64_t most) {
    state_ = State::kBody;
    if (parser_->is_done()) return dispatch();
    if (request_->header("expect") == "100-continue") {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      net::write(stream_.socket(), net::buffer(kContinue.data(), kContinue.size()), ignored_);
    }
    stream_.expires_after(server_->limits.idle_time + seconds(most / kLeastBytesPerSecond / 4));
    http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](Failure error, size_t) {
      if (error) return self->on_read_error(error);
      self->dispatch();
    });
  }

  void dispatch();

  // Sees a client go while its answer is made. What it may send ahead stays in the socket.
  void watch() {
    stream_.socket().async_wait(tcp::socket::wait_read,
                                [self = shared_from_this(), exchange = exchange_](Failure error) {
                                  if (!error && exchange == self->exchange_) self->look();
                                });
  }
  void look() {
    if (state_ != State::kHandling && state_ != State::kStreaming) return;
    char byte;
    const ssize_t got = ::recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) close();
  }

  void tell_gone() {
    for (auto& gone : std::exchange(gone_, {})) gone();
  }

  void on_read_error(Failure error) {
    if (error == http::error::end_of_stream || error == beast::error::timeout ||
        error == net::error::operation_aborted || error == net::error::connection_reset)
      return close();
    if (!request_) request_ = std::make_shared<HttpRequest>();
    keep_alive_ = false;
    if (error == http::error::body_limit)
      return refuse({413, "body_too_large", "the body is larger than is accepted here", ""});
    if (error == http::error::header_limit || error == http::error::buffer_overflow)
      return refuse({431, "headers_too_large",
                     concat("expected at most ", server_->limits.header_bytes, " bytes of headers"), ""});
    if (error == http::error::partial_message) return close();
    refuse({400, "invalid_http", concat("not HTTP: ", error.message()), ""});
  }

  void refuse(const ApiError& error) { refuse(error_response(request_->path, error)); }
  // Without reading the body: the connection ends with this response.
  void refuse(HttpResponse response) {
    state_ = State::kHandling;
    keep_alive_ = keep_alive_ && parser_->is_done();
    server_->callbacks.finish(*request_, response);
    send(exchange_, std::move(response));
  }

  void queue_head(const HttpResponse& response, bool streams) {
    std::string head =
        concat("HTTP/1.1 ", response.status, " ", reason_phrase(response.status), "\r\nDate: ", date(),
               "\r\nServer: rocm-sd\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n");
    if (!response.content_type.empty()) head += "Content-Type: " + response.content_type + "\r\n";
    for (const auto& [name, value] : response.headers) head += concat(name, ": ", one_line(value), "\r\n");
    if (!streams && response.status != 204) head += concat("Content-Length: ", response.body.size(), "\r\n");
    if (streams && chunked_) head += "Transfer-Encoding: chunked\r\n";
    if (streams && !chunked_) keep_alive_ = false;
    keep_alive_ = keep_alive_ && !server_->closing;
    head += keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
    queue(std::move(head));
  }

  void queue(std::string bytes) {
    if (bytes.empty()) return;
    unsent_ += bytes.size();
    out_.push_back(std::move(bytes));
    if (!writing_) write_next();
  }

  void write_next() {
    writing_ = true;
    stream_.expires_after(server_->limits.idle_time + seconds(out_.front().size() / kLeastBytesPerSecond));
    // As much at once as the socket takes: Asio's own condition stops after 64 KB each time.
    net::async_write(
        stream_, net::buffer(out_.front()),
        [](const Failure& error, size_t) { return error ? 0 : kMaxUnsent; },
        [self = shared_from_this()](Failure error, size_t) { self->on_written(error); });
  }

  void on_written(Failure error) {
    writing_ = false;
    if (error) return close();
    unsent_ -= out_.front().size();
    out_.pop_front();
    if (!out_.empty()) return write_next();
    if (state_ == State::kFinishing) return next();
    stream_.expires_never();  // of a stream that waits for its next part
  }

  void finish_response() {
    gone_.clear();
    state_ = State::kFinishing;
    if (!writing_ && out_.empty()) next();
  }

  void next() {
    const auto keep = shared_from_this();
    self_.reset();
    Failure ignored;
    stream_.socket().cancel(ignored);  // the watch
    request_.reset();
    if (keep_alive_) return read_head();
    // What is still on its way is read for a while: a reset connection could lose the response.
    state_ = State::kLinger;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(kLingerTime);
    rest_.resize(1 << 14);
    drain();
  }
  void drain() {
    stream_.async_read_some(net::buffer(rest_), [self = shared_from_this()](Failure error, size_t) {
      if (error) return self->close();
      self->drain();
    });
  }

  const std::shared_ptr<HttpCore> server_;
  beast::tcp_stream stream_;
  const std::string client_;
  beast::flat_buffer buffer_{1 << 17};
  std::optional<http::request_parser<http::string_body>> parser_;
  std::shared_ptr<HttpRequest> request_;
  State state_ = State::kHead;
  std::chrono::steady_clock::time_point since_;
  uint64_t exchange_ = 0;
  bool first_ = true, keep_alive_ = false, is_head_ = false, chunked_ = true, writing_ = false;
  std::deque<std::string> out_;
  size_t unsent_ = 0;
  std::vector<std::function<void()>> gone_;
  std::string rest_;
  std::shared_ptr<Session> self_;
  Failure ignored_;
};

// What a handler holds: hands over to the thread of connections.
class SessionReply : public Reply {
 public:
  SessionReply(std::weak_ptr<Session> session, std::shared_ptr<HttpCore> server, uint64_t exchange,
               std::shared_ptr<const HttpRequest> request)
      : session_(std::move(session)),
        server_(std::move(server)),
        exchange_(exchange),
        request_(std::move(request)) {}
  ~SessionReply() override {
    if (!answered_.exchange(true))
      finish_and_send(error_response(request_->path, {500, "internal_error", "no answer was made", ""}));
    else if (streams_ && !ended_)
      over([](Session& s, uint64_t e) { s.end(e); });
  }

  void send(HttpResponse response) override {
    if (!answered_.exchange(true)) finish_and_send(std::move(response));
  }
  void begin(HttpResponse head) override {
    if (answered_.exchange(true)) return;
    streams_ = true;
    server_->callbacks.finish(*request_, head);
    over([head = std::move(head)](Session& s, uint64_t e) { s.begin(e, head); });
  }
  void write(std::string part) override {
    over([part = std::move(part)](Session& s, uint64_t e) { s.write(e, part); });
  }
  void end() override {
    if (!ended_.exchange(true)) over([](Session& s, uint64_t e) { s.end(e); });
  }
  void on_gone(std::function<void()> gone) override {
    // Also where the session has ended already.
    net::post(server_->io, [weak = session_, exchange = exchange_, gone = std::move(gone)] {
      const auto session = weak.lock();
      if (session)
        session->on_gone(exchange, gone);
      else
        gone();
    });
  }

 private:
  void finish_and_send(HttpResponse response) {
    server_->callbacks.finish(*request_, response);
    auto shared = std::make_shared<HttpResponse>(std::move(response));
    over([shared](Session& s, uint64_t e) { s.send(e, std::move(*shared)); });
  }
  template <class Work>
  void over(Work work) {
    net::post(server_->io, [weak = session_, exchange = exchange_, work = std::move(work)] {
      if (const auto session = weak.lock()) work(*session, exchange);
    });
  }

  const std::weak_ptr<Session> session_;
  const std::shared_ptr<HttpCore> server_;
  const uint64_t exchange_;
  const std::shared_ptr<const HttpRequest> request_;
  std::atomic<bool> answered_{false}, ended_{false}, streams_{false};
};

void Session::dispatch() {
  state_ = State::kHandling;
  first_ = false;
  self_ = shared_from_this();  // no operation of the socket may be pending while the handler works
  stream_.expires_never();
  request_->body = std::move(parser_->get().body());
  watch();
  std::shared_ptr<Reply> reply =
      std::make_shared<SessionReply>(weak_from_this(), server_, exchange_, request_);
  net::post(server_->handlers, [server = server_, request = request_, reply = std::move(reply)]() mutable {
    server->callbacks.handle(request, std::move(reply));
  });
}

}  // namespace

void begin_http(std::shared_ptr<HttpCore> core, tcp::socket socket, std::string client) {
  std::make_shared<Session>(std::move(core), std::move(socket), std::move(client))->read_head();
}

}  // namespace rocm_sd::server
