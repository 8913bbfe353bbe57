#include "server/journal.hpp"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/text.hpp"

namespace rocm_sd::server {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;                    // PRAGMA user_version
constexpr int kApplication = 0x72736a6c;       // PRAGMA application_id, "rsjl"
constexpr size_t kMaxRequestJson = 64u << 20;  // as large as a body may be

constexpr const char* kTables = R"(
CREATE TABLE jobs(id TEXT PRIMARY KEY, place INTEGER NOT NULL, state TEXT NOT NULL, runs INTEGER NOT NULL,
  client TEXT NOT NULL, created REAL NOT NULL, started REAL NOT NULL, finished REAL NOT NULL, device TEXT NOT NULL,
  request TEXT NOT NULL, error TEXT NOT NULL, warnings TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE files(job TEXT NOT NULL, number INTEGER NOT NULL, option TEXT NOT NULL, joins INTEGER NOT NULL,
  bytes BLOB NOT NULL, PRIMARY KEY(job, number));
CREATE TABLE images(job TEXT NOT NULL, number INTEGER NOT NULL, seed TEXT NOT NULL, width INTEGER NOT NULL,
  height INTEGER NOT NULL, parameters TEXT NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY(job, number));
)";

double seconds_of(JobTime time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }
JobTime time_of(double seconds) {
  return JobTime(std::chrono::duration_cast<JobTime::duration>(std::chrono::duration<double>(seconds)));
}

std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

json enlargement_json(const Enlargement& e) {
  return {{"upscaler", e.upscaler}, {"factor", e.factor}, {"width", e.width},
          {"height", e.height},     {"crops", e.crops},   {"of_drawn", e.of_drawn}};
}

Enlargement enlargement_of(const json& value) {
  return {.upscaler = value.at("upscaler"),
          .factor = value.at("factor"),
          .width = value.at("width"),
          .height = value.at("height"),
          .crops = value.at("crops"),
          .of_drawn = value.at("of_drawn")};
}

json request_json(const JobRequest& r) {
  return {{"model", r.model},
          {"options", r.options},
          {"rounds", r.rounds},
          {"batch", r.batch},
          {"steps", r.steps},
          {"format", r.format},
          {"quality", r.quality},
          {"invert", r.inverts_mask},
          {"metadata", r.metadata},
          {"partials", r.partials},
          {"steps_factor", r.steps_factor},
          {"enlargement", enlargement_json(r.enlargement)}};
}

JobRequest request_of(const std::string& text) {
  const json value =
      parse_json(text, {.max_bytes = kMaxRequestJson, .max_depth = 8, .max_values = 100'000}, "request");
  JobRequest r;
  r.model = value.at("model");
  r.options = value.at("options").get<std::vector<std::pair<std::string, std::string>>>();
  r.rounds = value.at("rounds");
  r.batch = value.at("batch");
  r.steps = value.at("steps");
  r.format = value.at("format");
  r.quality = value.at("quality");
  r.inverts_mask = value.at("invert");
  r.metadata = value.at("metadata");
  r.partials = value.at("partials");
  r.steps_factor = value.at("steps_factor");
  if (value.contains("enlargement"))
    r.enlargement = enlargement_of(value["enlargement"]);  // older ones had none
  require<FormatError>(r.rounds >= 1 && r.batch >= 1 && r.steps >= 1, "request: expected counts above 0");
  return r;
}

JobState state_named(const std::string& name) {
  for (const JobState state :
       {JobState::kQueued, JobState::kRunning, JobState::kCompleted, JobState::kFailed, JobState::kCancelled})
    if (to_string(state) == name) return state;
  throw FormatError(concat("unknown state \"", printable(name), "\""));
}

}  // namespace

struct Journal::State {
  std::string path;
  sqlite3* database = nullptr;
  int64_t first = 0, last = 0;  // places in the queue that are taken

  ~State() { sqlite3_close_v2(database); }

  [[noreturn]] void fail(const char* what) const {
    throw FileError(concat("journal: ", printable(path), ": cannot ", what, ": ", sqlite3_errmsg(database)));
  }
  void run(const char* sql) const {
    if (sqlite3_exec(database, sql, nullptr, nullptr, nullptr) != SQLITE_OK) fail("be written");
  }
};

namespace {

// A prepared statement: its values, then its rows.
class Statement {
 public:
  Statement(sqlite3* database, const char* sql) {
    if (sqlite3_prepare_v2(database, sql, -1, &statement_, nullptr) != SQLITE_OK)
      throw FormatError(concat("journal: ", sqlite3_errmsg(database)));
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& text(std::string_view value) {
    sqlite3_bind_text64(statement_, ++bound_, value.data(), value.size(), SQLITE_STATIC, SQLITE_UTF8);
    return *this;
  }
  Statement& blob(std::string_view value) {
    sqlite3_bind_blob64(statement_, ++bound_, value.data(), value.size(), SQLITE_STATIC);
    return *this;
  }
  Statement& number(int64_t value) {
    sqlite3_bind_int64(statement_, ++bound_, value);
    return *this;
  }
  Statement& real(double value) {
    sqlite3_bind_double(statement_, ++bound_, value);
    return *this;
  }
  int step() { return sqlite3_step(statement_); }
  int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }
  double real(int column) const { return sqlite3_column_double(statement_, column); }
  std::string bytes(int column) const {
    const void* data = sqlite3_column_blob(statement_, column);
    const auto size = static_cast<size_t>(sqlite3_column_bytes(statement_, column));
    return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), size);
  }

 private:
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

// All of it, or nothing.
class Transaction {
 public:
  explicit Transaction(sqlite3* database) : database_(database) {
    done_ = sqlite3_exec(database, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) != SQLITE_OK;
  }
  ~Transaction() {
    if (!done_) sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
  }
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  bool commit() {
    if (!done_) done_ = sqlite3_exec(database_, "COMMIT", nullptr, nullptr, nullptr) == SQLITE_OK;
    return done_;
  }

 private:
  sqlite3* database_;
  bool done_ = false;
};

int64_t pragma(sqlite3* database, const char* sql) {
  Statement statement(database, sql);
  return statement.step() == SQLITE_ROW ? statement.integer(0) : 0;
}

// For its owner alone; SQLite gives its log the same mode.
void create_private(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  require<FileError>(descriptor >= 0, "journal: ", printable(path), ": ", std::strerror(errno));
  ::close(descriptor);
}

}  // namespace

Journal::Journal(const std::string& path) : state_(std::make_unique<State>()) {
  create_private(path);
  state_->path = path;
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
  if (sqlite3_open_v2(path.c_str(), &state_->database, kFlags, nullptr) != SQLITE_OK)
    state_->fail("be opened");
  sqlite3* database = state_->database;
  sqlite3_db_config(database, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  // The lock is held until the end; what is deleted leaves the file.
  sqlite3_exec(database,
               "PRAGMA locking_mode=EXCLUSIVE; PRAGMA auto_vacuum=FULL; PRAGMA secure_delete=ON; "
               "PRAGMA synchronous=FULL",
               nullptr, nullptr, nullptr);
  const int opened =
      sqlite3_exec(database, "PRAGMA journal_mode=WAL; BEGIN EXCLUSIVE; COMMIT", nullptr, nullptr, nullptr);
  require<UsageError>(opened != SQLITE_BUSY && opened != SQLITE_LOCKED, "journal: ", printable(path),
                      ": another server has it open");
  require<FormatError>(opened == SQLITE_OK, "journal: ", printable(path),
                       ": expected a journal of rocm-sd serve, or no file: ", sqlite3_errmsg(database));
  const int64_t application = pragma(database, "PRAGMA application_id"),
                version = pragma(database, "PRAGMA user_version");
  if (application == 0 && version == 0 && pragma(database, "SELECT count(*) FROM sqlite_master") == 0) {
    state_->run("BEGIN IMMEDIATE");
    state_->run(kTables);
    state_->run(concat("PRAGMA application_id=", kApplication, "; PRAGMA user_version=", kVersion, "; COMMIT")
                    .c_str());
    return;
  }
  require<FormatError>(application == kApplication && version == kVersion, "journal: ", printable(path),
                       ": expected a journal of version ", kVersion, " of rocm-sd serve, got one of version ",
                       version, " of ", application == kApplication ? "it" : "another program");
  state_->first = pragma(database, "SELECT coalesce(min(place), 0) FROM jobs");
  state_->last = pragma(database, "SELECT coalesce(max(place), 0) FROM jobs");
}

Journal::~Journal() = default;

namespace {

JournalJob read_row(const Statement& row) {
  JournalJob job;
  JobView& view = job.view;
  view.id = row.bytes(0);
  view.state = state_named(row.bytes(1));
  job.runs = static_cast<int>(row.integer(2));
  view.client = row.bytes(3);
  view.created = time_of(row.real(4));
  view.started = time_of(row.real(5));
  view.finished = time_of(row.real(6));
  view.device = row.bytes(7);
  view.request = request_of(row.bytes(8));
  const json error =
      parse_json(row.bytes(9), {.max_bytes = 1u << 20, .max_depth = 4, .max_values = 16}, "error");
  if (!error.empty()) view.error = {error.at("status"), error.at("type"), error.at("message")};
  const json warnings =
      parse_json(row.bytes(10), {.max_bytes = 16u << 20, .max_depth = 4, .max_values = 10'000}, "warnings");
  view.warnings = warnings.get<std::vector<std::string>>();
  return job;
}

}  // namespace

std::vector<JournalJob> Journal::read() {
  std::vector<JournalJob> out;
  try {
    Statement rows(
        state_->database,
        "SELECT id, state, runs, client, created, started, finished, device, request, error, warnings "
        "FROM jobs ORDER BY state = 'running' DESC, state = 'queued' DESC, "
        "CASE WHEN state IN ('running', 'queued') THEN place ELSE finished END");
    int code = SQLITE_ROW;
    while ((code = rows.step()) == SQLITE_ROW) out.push_back(read_row(rows));
    if (code != SQLITE_DONE) state_->fail("be read");
    for (JournalJob& job : out) {
      if (is_final(job.view.state)) {
        Statement images(
            state_->database,
            "SELECT bytes, seed, width, height, parameters FROM images WHERE job = ? ORDER BY number");
        images.text(job.view.id);
        while (images.step() == SQLITE_ROW)
          job.view.images.push_back(std::make_shared<const JobImage>(
              JobImage{images.bytes(0), std::stoull(images.bytes(1)), static_cast<int>(images.integer(2)),
                       static_cast<int>(images.integer(3)), images.bytes(4)}));
        continue;
      }
      auto request = std::make_shared<JobRequest>(job.view.request);
      Statement files(state_->database,
                      "SELECT option, joins, bytes FROM files WHERE job = ? ORDER BY number");
      files.text(job.view.id);
      while (files.step() == SQLITE_ROW)
        request->files.push_back({files.bytes(0), files.bytes(2), files.integer(1) != 0});
      job.request = std::move(request);
    }
  } catch (const json::exception& e) {
    throw FormatError(concat("journal: ", printable(state_->path), ": ", e.what()));
  } catch (const std::logic_error& e) {
    throw FormatError(concat("journal: ", printable(state_->path), ": ", e.what()));
  }
  return out;
}

void Journal::add(const JobView& job, const JobRequest& request, bool front) {
  Transaction transaction(state_->database);
  const int64_t place = front ? state_->first - 1 : state_->last + 1;
  const std::string text = dump(request_json(request));
  Statement row(state_->database,
                "INSERT INTO jobs VALUES(?, ?, 'queued', 0, ?, ?, 0, 0, '', ?, '{}', '[]')");
  row.text(job.id).number(place).text(job.client).real(seconds_of(job.created)).text(text);
  if (row.step() != SQLITE_DONE) state_->fail("take a job");
  for (size_t i = 0; i < request.files.size(); ++i) {
    const Attachment& file = request.files[i];
    Statement add(state_->database, "INSERT INTO files VALUES(?, ?, ?, ?, ?)");
    add.text(job.id)
        .number(static_cast<int64_t>(i))
        .text(file.option)
        .number(file.joins ? 1 : 0)
        .blob(file.bytes);
    if (add.step() != SQLITE_DONE) state_->fail("take a job's picture");
  }
  if (!transaction.commit()) state_->fail("take a job");
  (front ? state_->first : state_->last) = place;
}

void Journal::begin(const JobView& job) {
  Statement row(state_->database,
                "UPDATE jobs SET state = 'running', runs = runs + 1, started = ?, device = ? WHERE id = ?");
  row.real(seconds_of(job.started)).text(job.device).text(job.id);
  if (row.step() != SQLITE_DONE) state_->fail("note that a job runs");
}

void Journal::put_back(const JobView& job) { queue_again(job.id, 1); }
void Journal::wait_again(const JobView& job) { queue_again(job.id, 0); }

// Before all others; its images are drawn again.
void Journal::queue_again(const std::string& id, int forgiven_runs) {
  Transaction transaction(state_->database);
  Statement row(state_->database,
                "UPDATE jobs SET state = 'queued', runs = max(0, runs - ?), place = ? WHERE id = ?");
  row.number(forgiven_runs).number(state_->first - 1).text(id);
  Statement images(state_->database, "DELETE FROM images WHERE job = ?");
  images.text(id);
  if (row.step() != SQLITE_DONE || images.step() != SQLITE_DONE || !transaction.commit())
    state_->fail("put a job back");
  --state_->first;
}

void Journal::add_image(const std::string& id, const JobImage& image) {
  const std::string seed = std::to_string(image.seed);  // all 64 bits count
  Statement row(state_->database,
                "INSERT INTO images SELECT ?1, count(*), ?2, ?3, ?4, ?5, ?6 FROM images WHERE job = ?1");
  row.text(id).text(seed).number(image.width).number(image.height).text(image.parameters).blob(image.bytes);
  if (row.step() != SQLITE_DONE) state_->fail("take an image");
}

void Journal::finish(const JobView& job) {
  Transaction transaction(state_->database);
  json error = json::object();
  if (job.state == JobState::kFailed)
    error = {{"status", job.error.status}, {"type", job.error.type}, {"message", job.error.message}};
  const std::string state(to_string(job.state)), error_text = dump(error), warnings = dump(job.warnings);
  Statement row(state_->database,
                "UPDATE jobs SET state = ?, finished = ?, error = ?, warnings = ? WHERE id = ?");
  row.text(state).real(seconds_of(job.finished)).text(error_text).text(warnings).text(job.id);
  Statement files(state_->database, "DELETE FROM files WHERE job = ?");
  files.text(job.id);
  if (row.step() != SQLITE_DONE || files.step() != SQLITE_DONE || !transaction.commit())
    state_->fail("note a job's end");
}

void Journal::forget(const std::string& id) {
  Transaction transaction(state_->database);
  for (const char* sql : {"DELETE FROM images WHERE job = ?", "DELETE FROM files WHERE job = ?",
                          "DELETE FROM jobs WHERE id = ?"}) {
    Statement row(state_->database, sql);
    row.text(id);
    if (row.step() != SQLITE_DONE) state_->fail("forget a job");
  }
  if (!transaction.commit()) state_->fail("forget a job");
}

}  // namespace rocm_sd::server
