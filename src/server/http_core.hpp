// What the server's connections share: for http_*.cpp alone, which include Boost.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <memory>
#include <set>
#include <string>

#include "server/http_server.hpp"

namespace rocm_sd::server {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = net::ip::tcp;
using Failure = beast::error_code;

constexpr size_t kHandlerThreads = 4;
constexpr size_t kMaxUnsent = 4u << 20;  // of a stream or a WebSocket; a client that reads slower is cut off

// One client's connection, of HTTP or WebSocket. Lives on the thread of connections.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual void close() = 0;
  // Since when it waits for a request's head, which makes it the one to go when there are too many.
  virtual std::optional<std::chrono::steady_clock::time_point> waits_since() const { return std::nullopt; }
  virtual bool is_socket() const { return false; }
};

class HttpCore : public std::enable_shared_from_this<HttpCore> {
 public:
  HttpCore(const HttpLimits& limits, HttpCallbacks callbacks)
      : limits(limits), callbacks(std::move(callbacks)), acceptor(io), pause(io), handlers(kHandlerThreads) {}

  void listen(const std::string& address, uint16_t port);
  void accept();
  void add(Connection* connection);
  void remove(Connection* connection);
  bool takes_another_socket() const;  // WebSockets have at most half of the connections

  const HttpLimits limits;
  const HttpCallbacks callbacks;
  net::io_context io;
  tcp::acceptor acceptor;
  net::steady_timer pause;
  net::thread_pool handlers;
  std::set<Connection*> connections;  // those that live; only on the thread of connections
  std::atomic<size_t> count{0};
  bool closing = false;

 private:
  void make_room();
};

// http_session.cpp: reads requests and answers them until the connection ends.
void begin_http(std::shared_ptr<HttpCore> core, tcp::socket socket, std::string client);
// http_socket.cpp: goes on as a WebSocket. `asked` is the request's head.
void begin_socket(std::shared_ptr<HttpCore> core, beast::tcp_stream stream,
                  const http::request<http::string_body>& asked, std::shared_ptr<const HttpRequest> request);

}  // namespace rocm_sd::server
