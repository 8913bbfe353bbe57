// Who may ask, and which targets are paths.
#include "server/access.hpp"

#include <gtest/gtest.h>

namespace rocm_sd::server {
namespace {

HttpRequest request(const char* method, Headers headers) {
  HttpRequest r;
  r.method = method;
  r.path = "/v1/jobs";
  r.headers = std::move(headers);
  return r;
}

int refusal(const HttpRequest& r, const AccessRules& rules = {}) {
  const auto error = check_access(r, rules);
  return error ? error->status : 0;
}

TEST(Access, HostsThatAreNames) {
  for (const char* host : {"localhost", "localhost:7860", "127.0.0.1:1", "[::1]:7860", "192.168.1.7:7860",
                           "LOCALHOST", "a.localhost"})
    EXPECT_EQ(refusal(request("GET", {{"host", host}})), 0) << host;
  for (const char* host :
       {"", "evil.com", "evil.com:7860", "localhost.evil.com", "127.0.0.1.evil.com", "[evil]", "1.2.3"})
    EXPECT_EQ(refusal(request("GET", {{"host", host}})), 403) << host;
  EXPECT_EQ(refusal(request("GET", {{"host", "Box.lan:80"}}), {.allowed_hosts = {"box.LAN"}}), 0);
  EXPECT_EQ(refusal(request("GET", {{"host", "evil.com"}, {"x-api-key", "k"}}), {.api_key = "k"}), 0);
}

TEST(Access, OriginsOfWhatChangesSomething) {
  const auto post = [](const char* origin) {
    return request("POST", {{"host", "localhost:7860"}, {"origin", origin}});
  };
  EXPECT_EQ(refusal(post("http://localhost:7860")), 0);
  EXPECT_EQ(refusal(post("https://localhost:7860")), 0);  // behind a proxy
  for (const char* origin : {"http://localhost:7861", "http://evil.com", "null", "localhost:7860"})
    EXPECT_EQ(refusal(post(origin)), 403) << origin;
  EXPECT_EQ(refusal(post("https://good.example"), {.cors_origins = {"https://good.example"}}), 0);
  EXPECT_EQ(refusal(request("GET", {{"host", "localhost"}, {"origin", "http://evil.com"}})), 0);
  EXPECT_EQ(refusal(request("POST", {{"host", "localhost"}, {"sec-fetch-site", "cross-site"}})), 403);
}

TEST(Access, Keys) {
  const AccessRules rules{.api_key = "secret:key"};
  EXPECT_EQ(refusal(request("GET", {}), rules), 401);
  EXPECT_EQ(refusal(request("GET", {{"authorization", "Bearer secret:key"}}), rules), 0);
  EXPECT_EQ(refusal(request("GET", {{"authorization", "bearer  secret:key"}}), rules), 0);
  EXPECT_EQ(refusal(request("GET", {{"x-api-key", "secret:key"}}), rules), 0);
  EXPECT_EQ(refusal(request("GET", {{"authorization", "Basic dXNlcjpzZWNyZXQ6a2V5"}}), rules),
            0);  // user:secret:key
  for (const char* wrong : {"Bearer", "Bearer ", "Bearer secret", "Bearer secret:keys", "Basic %%%",
                            "Basic c2VjcmV0", "secret:key"})
    EXPECT_EQ(refusal(request("GET", {{"authorization", wrong}}), rules), 401) << wrong;
  HttpRequest probe = request("GET", {});
  probe.path = "/health";
  EXPECT_EQ(refusal(probe, rules), 0);
}

TEST(Access, KeysAreComparedWhole) {
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  for (const char* other : {"", "ab", "abd", "abcd", "xbc"})
    EXPECT_FALSE(equal_in_constant_time(other, "abc")) << other;
}

TEST(Access, TypesOfBodies) {
  const auto post = [](const char* type) {
    return request("POST", {{"host", "localhost"}, {"content-length", "2"}, {"content-type", type}});
  };
  EXPECT_EQ(refusal(post("application/json; charset=utf-8")), 0);
  EXPECT_EQ(refusal(post("multipart/form-data; boundary=x")), 0);
  for (const char* type : {"", "text/plain", "application/x-www-form-urlencoded"})
    EXPECT_EQ(refusal(post(type)), 415) << type;
  EXPECT_EQ(refusal(request("POST", {{"host", "localhost"}, {"content-length", "0"}})), 0);
  EXPECT_EQ(refusal(request("POST", {{"host", "localhost"}, {"transfer-encoding", "chunked"}})), 415);
}

TEST(Targets, PathsAndQueries) {
  HttpRequest r;
  ASSERT_TRUE(parse_target("/a%20b/c?x=1+2&y&z=%26#part", r));
  EXPECT_EQ(r.path, "/a b/c");
  EXPECT_EQ(r.query, (std::map<std::string, std::string>{{"x", "1 2"}, {"y", ""}, {"z", "&"}}));
  for (const char* target : {"", "a", "*", "/..", "/a/../b", "/%2e%2e/a", "/a/.", "/a\\b", "/a%5cb", "/%00",
                             "/%0d%0a", "/%", "/%4", "/%zz", "/%ff", "http://localhost/"})
    EXPECT_FALSE(parse_target(target, r)) << target;
  std::string many = "/?";
  for (int i = 0; i < 65; ++i) many += "a" + std::to_string(i) + "&";
  EXPECT_FALSE(parse_target(many, r));
}

}  // namespace
}  // namespace rocm_sd::server
