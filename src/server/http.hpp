// HTTP as handlers see it: a request in memory, a reply that any thread may send. Knows nothing of sockets.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rocm_sd::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;                        // "GET", "POST", ...; HEAD comes as it is
  std::string path;                          // without the query, percent-decoded
  std::map<std::string, std::string> query;  // percent-decoded; of equal names the last
  Headers headers;                           // names in lower case
  std::string body;
  std::string client;  // address, without the port

  // The value of the first header of that name (lower case), or "".
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  Headers headers;
};

// The answer to one request. Every function may be called from any thread; after send() or end() nothing
// more is sent. A reply that is destroyed unanswered answers 500.
class Reply {
 public:
  virtual ~Reply() = default;
  virtual void send(HttpResponse response) = 0;
  // A response of unknown length: its head, then parts, then the end.
  virtual void begin(HttpResponse head) = 0;
  virtual void write(std::string part) = 0;
  virtual void end() = 0;
  // `gone` is called at most once, when the client goes away before the answer is complete; at once if it
  // has gone already. On the thread of the sockets: it must return quickly.
  virtual void on_gone(std::function<void()> gone) = 0;
};

// A WebSocket that was opened. Every function may be called from any thread. What the client says is dropped.
class Socket {
 public:
  virtual ~Socket() = default;
  virtual void send_text(std::string text) = 0;
  // A preview: of those that wait for a slow client the oldest are dropped.
  virtual void send_binary(std::string bytes) = 0;
  virtual void close() = 0;  // when all is sent
  // As Reply's.
  virtual void on_gone(std::function<void()> gone) = 0;
};

using Handler = std::function<void(std::shared_ptr<const HttpRequest>, std::shared_ptr<Reply>)>;

// "a%20b" -> "a b"; nothing where an escape is broken, a byte is a control character, or the result is not
// UTF-8. plus_is_blank: as in queries.
std::optional<std::string> percent_decode(std::string_view text, bool plus_is_blank = false);

// Splits "/a/b?x=1&y" into the request's path and query. False where it is no such path: no leading '/',
// "." or ".." as a part, a backslash, a broken escape, more than 64 fields.
bool parse_target(std::string_view target, HttpRequest& request);

// As nlohmann-json's dump() writes it, with what is not UTF-8 replaced; long texts without a character to
// escape, as pictures in base64 are, are copied as they are, which takes a third of the time.
std::string json_text(const nlohmann::json& body);
// The same of `body`, an object, with one member more: `name`, a list of `files` in base64, which are written
// to their place. `name` needs no escapes.
std::string json_text_with_files(std::string_view name, const std::vector<std::string_view>& files,
                                 const nlohmann::json& body);
HttpResponse json_response(const nlohmann::json& body, int status = 200);
HttpResponse json_text_response(std::string text, int status = 200);  // text: JSON already

// Why a request was refused, in the words of all families of APIs.
struct ApiError {
  int status = 400;
  std::string type;                    // "invalid_request_error", "queue_full", ...
  std::string message;                 // for people: what was expected, what came
  std::string param;                   // the field, or ""
  uint64_t needed = 0, available = 0;  // bytes, of out_of_memory where they are known
};
// Whether the path is one of ComfyUI's API, which has them below /api, too.
bool is_comfy_path(std::string_view path);
// In the form that clients of the path's API parse: A1111's below /sdapi, ComfyUI's on its paths, else
// OpenAI's.
HttpResponse error_response(std::string_view path, const ApiError& error);

// What a handler throws to answer with an error.
class RequestError : public std::exception {
 public:
  explicit RequestError(ApiError error) : error_(std::move(error)) {}
  const char* what() const noexcept override { return error_.message.c_str(); }
  const ApiError& error() const { return error_; }

 private:
  ApiError error_;
};

std::string_view reason_phrase(int status);

}  // namespace rocm_sd::server
