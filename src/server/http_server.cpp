#include "server/http_server.hpp"

#include <fcntl.h>

#include "base/error.hpp"
#include "server/http_core.hpp"

namespace rocm_sd::server {
namespace {

constexpr auto kAcceptPause = std::chrono::milliseconds(100);  // when descriptors run out

}  // namespace

void HttpCore::add(Connection* connection) {
  connections.insert(connection);
  count = connections.size();
}
void HttpCore::remove(Connection* connection) {
  connections.erase(connection);
  count = connections.size();
}

bool HttpCore::takes_another_socket() const {
  size_t sockets = 0;
  for (const Connection* connection : connections) sockets += connection->is_socket() ? 1 : 0;
  return 2 * sockets < limits.connections;
}

void HttpCore::listen(const std::string& address, uint16_t port) {
  Failure error;
  const auto ip = net::ip::make_address(address == "localhost" ? "127.0.0.1" : address, error);
  require<UsageError>(!error, "listen: expected an IP address, got \"", printable(address), "\"");
  const tcp::endpoint endpoint(ip, port);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(net::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(net::socket_base::max_listen_connections, error);
  require<UsageError>(!error, "cannot listen on ", address, ":", port, ": ", error.message());
}

void HttpCore::accept() {
  acceptor.async_accept([self = shared_from_this()](Failure error, tcp::socket socket) {
    if (error == net::error::operation_aborted || self->closing) return;
    if (error) {  // no descriptors left: those that wait are taken when some are free
      self->make_room();
      self->pause.expires_after(kAcceptPause);
      self->pause.async_wait([self](Failure) { self->accept(); });
      return;
    }
    if (self->connections.size() >= self->limits.connections) self->make_room();
    if (self->connections.size() < self->limits.connections) {
      Failure ignored;
      const auto peer = socket.remote_endpoint(ignored);
      socket.set_option(tcp::no_delay(true), ignored);
      socket.set_option(net::socket_base::keep_alive(true), ignored);
      const int descriptor = socket.native_handle();
      fcntl(descriptor, F_SETFD, FD_CLOEXEC);
      begin_http(self, std::move(socket), peer.address().to_string());
    }
    self->accept();
  });
}

// Too many connections: the one that has said nothing for longest goes.
void HttpCore::make_room() {
  Connection* longest = nullptr;
  for (Connection* connection : connections)
    if (connection->waits_since() &&
        (longest == nullptr || *connection->waits_since() < *longest->waits_since()))
      longest = connection;
  if (longest != nullptr) longest->close();
}

HttpServer::HttpServer(const std::string& address, uint16_t port, const HttpLimits& limits,
                       HttpCallbacks callbacks)
    : core_(std::make_shared<HttpCore>(limits, std::move(callbacks))) {
  core_->listen(address, port);
  core_->accept();
}

// Handlers go first: they hold replies. Connections that are still open close with the context.
HttpServer::~HttpServer() {
  join_handlers();
  Failure ignored;
  core_->acceptor.close(ignored);
  for (Connection* connection : std::set<Connection*>(core_->connections)) connection->close();
  core_->io.restart();
  core_->io.poll();  // what waited for the closed sockets lets go of them
}

uint16_t HttpServer::port() const {
  Failure ignored;
  return core_->acceptor.local_endpoint(ignored).port();
}

void HttpServer::run() { core_->io.run(); }

void HttpServer::stop_accepting() {
  net::post(core_->io, [core = core_] {
    core->closing = true;
    Failure ignored;
    core->acceptor.close(ignored);
    core->pause.cancel();
    for (Connection* connection : std::set<Connection*>(core->connections))
      if (connection->waits_since()) connection->close();
  });
}

void HttpServer::stop() { core_->io.stop(); }

void HttpServer::join_handlers() {
  core_->handlers.stop();
  core_->handlers.join();
}

void HttpServer::post(std::function<void()> work) { net::post(core_->handlers, std::move(work)); }

size_t HttpServer::connections() const { return core_->count; }

}  // namespace rocm_sd::server
