// WebSockets end without a trace, whoever ends them and when.
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <mutex>
#include <thread>

#include "server/http_server.hpp"

namespace rocm_sd::server {
namespace {

namespace net = boost::asio;
using tcp = net::ip::tcp;

// What lives as long as the server's connections do.
struct Token {};

struct Opened {
  std::mutex mutex;
  std::vector<std::shared_ptr<Socket>> sockets;
};

HttpCallbacks callbacks_with(std::shared_ptr<Token> token,
                             std::function<void(std::shared_ptr<Socket>)> open) {
  HttpCallbacks out;
  out.check_head = [token](const HttpRequest&) { return std::nullopt; };
  out.body_limit = [](const HttpRequest&) { return uint64_t{1024}; };
  out.handle = [](const std::shared_ptr<const HttpRequest>&, const std::shared_ptr<Reply>& reply) {
    reply->send({200, "text/plain", "here", {}});
  };
  out.takes_socket = [](const HttpRequest&) { return true; };
  out.open = [open = std::move(open)](const std::shared_ptr<const HttpRequest>&,
                                      std::shared_ptr<Socket> socket) { open(std::move(socket)); };
  out.finish = [](const HttpRequest&, HttpResponse&) {};
  return out;
}

// Asks for a WebSocket and reads the answer's head.
tcp::socket ask_for_socket(net::io_context& io, uint16_t port) {
  tcp::socket client(io);
  client.connect({net::ip::make_address("127.0.0.1"), port});
  net::write(client, net::buffer(std::string("GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
                                             "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                                             "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")));
  std::string head;
  net::read_until(client, net::dynamic_buffer(head), "\r\n\r\n");
  EXPECT_EQ(head.substr(0, 12), "HTTP/1.1 101");
  return client;
}

enum class Ends { kServerTwice, kServerByDropping, kClientLeaves, kClientSaysGoodbye, kNobody };
const char* const kNames[] = {"server_twice", "server_by_dropping", "client_leaves", "client_says_goodbye",
                              "nobody"};

// Who ends, and whether a message is on its way meanwhile.
class SocketsEnd : public testing::TestWithParam<std::tuple<Ends, bool>> {};

TEST_P(SocketsEnd, AndNothingIsLeft) {
  constexpr int kClients = 5;
  const auto [ends, speaks] = GetParam();
  auto token = std::make_shared<Token>();
  const std::weak_ptr<Token> alive = token;
  Opened opened;
  std::atomic<int> began{0};
  {
    HttpServer server(
        "127.0.0.1", 0, {},
        callbacks_with(std::move(token), [&, ends = ends, speaks = speaks](std::shared_ptr<Socket> socket) {
          if (speaks) socket->send_text("hello");
          if (ends == Ends::kServerTwice) socket->close();  // and dropping it is the second end
          if (ends == Ends::kServerTwice || ends == Ends::kServerByDropping) {
            socket.reset();
          } else {
            const std::lock_guard lock(opened.mutex);
            opened.sockets.push_back(std::move(socket));
          }
          ++began;
        }));
    std::thread connections([&] { server.run(); });
    net::io_context io;
    std::vector<tcp::socket> clients;
    for (int i = 0; i < kClients; ++i) clients.push_back(ask_for_socket(io, server.port()));
    while (began < kClients) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const bool clients_end = ends == Ends::kClientLeaves || ends == Ends::kClientSaysGoodbye;
    const std::string goodbye("\x88\x82\0\0\0\0\x03\xe8", 8);  // masked by zeros: normal closure
    for (tcp::socket& client : clients) {
      if (ends == Ends::kClientSaysGoodbye) net::write(client, net::buffer(goodbye));
      if (clients_end) client.close();
    }
    if (clients_end) {
      while (server.connections() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } else {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(50));  // the ends are under way: nobody answers them
    }
    server.stop();
    connections.join();
  }
  opened.sockets.clear();
  EXPECT_TRUE(alive.expired()) << "a session holds the server's context";
}

INSTANTIATE_TEST_SUITE_P(Http, SocketsEnd,
                         testing::Combine(testing::Values(Ends::kServerTwice, Ends::kServerByDropping,
                                                          Ends::kClientLeaves, Ends::kClientSaysGoodbye,
                                                          Ends::kNobody),
                                          testing::Bool()),
                         [](const auto& info) {
                           return std::string(kNames[static_cast<int>(std::get<0>(info.param))]) +
                                  (std::get<1>(info.param) ? "_speaking" : "");
                         });

}  // namespace
}  // namespace rocm_sd::server
