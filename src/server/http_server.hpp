// The server's sockets: HTTP/1.1 with limits on everything that a client can make large or slow. One thread
// for all connections, a few for handlers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/http.hpp"
#include "server/options.hpp"

namespace rocm_sd::server {

class HttpCore;

struct HttpCallbacks {
  // Asked when a request's head is there: a response refuses it, and its body is not read.
  std::function<std::optional<HttpResponse>(const HttpRequest& head)> check_head;
  std::function<uint64_t(const HttpRequest& head)> body_limit;
  Handler handle;  // on a thread of handlers; may block briefly
  // Whether a request to upgrade is one for a WebSocket (else it is handled as any other), and what begins
  // it, on a thread of handlers.
  std::function<bool(const HttpRequest& head)> takes_socket;
  std::function<void(std::shared_ptr<const HttpRequest> request, std::shared_ptr<Socket> socket)> open;
  // Sees every response before it goes out, on the thread of connections or of a handler.
  std::function<void(const HttpRequest& request, HttpResponse& response)> finish;
};

class HttpServer {
 public:
  // Listens at once; port 0 takes a free one. Throws UsageError where the address cannot be listened on.
  HttpServer(const std::string& address, uint16_t port, const HttpLimits& limits, HttpCallbacks callbacks);
  ~HttpServer();

  uint16_t port() const;
  void run();             // serves until stop(); on the calling thread
  void stop_accepting();  // thread-safe, as are those below
  void stop();
  void join_handlers();                   // after run(): none works any more
  void post(std::function<void()> work);  // onto the threads of handlers
  size_t connections() const;

 private:
  std::shared_ptr<HttpCore> core_;
};

}  // namespace rocm_sd::server
