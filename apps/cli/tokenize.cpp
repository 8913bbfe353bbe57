// rocm-sd tokenize: what a prompt becomes: token ids, their pieces of text, weights and chunks.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/commands.hpp"
#include "apps/cli/values.hpp"
#include "base/error.hpp"
#include "base/utf8.hpp"
#include "pipeline/embeddings.hpp"
#include "pipeline/model_tokenizer.hpp"
#include "text/prompt_schedule.hpp"

namespace rocm_sd::cli {
namespace {

using Json = nlohmann::ordered_json;

struct TokenizeCommand {
  std::string prompt, model, tokenizer, embedding_dir;
  std::vector<std::string> embeddings;
  int steps = 20;
  bool plain = false, json = false;
};

struct NamedTokenizer {
  std::string encoder;
  ModelTokenizer own;
};

// The tokenizers of a model's text encoders, a folder's, or CLIP's.
std::vector<NamedTokenizer> wanted_tokenizers(const TokenizeCommand& c) {
  std::vector<NamedTokenizer> out;
  if (!c.model.empty()) {
    const Checkpoint model = Checkpoint::open(c.model);
    for (const Component component : {Component::kTextEncoder, Component::kTextEncoder2}) {
      if (model.find(component) == nullptr) continue;
      const nlohmann::json& config = model.config(component);
      const auto positions = config.find("max_position_embeddings");
      const bool given = positions != config.end() && positions->is_number_integer();
      out.push_back({std::string(component_name(component)),
                     open_tokenizer(model, component, given ? positions->get<int64_t>() : 77)});
    }
    require<FormatError>(!out.empty(), printable(c.model), ": has no text encoder");
    return out;
  }
  const bool shipped = c.tokenizer.empty();
  ModelTokenizer own{shipped ? ClipTokenizer::shipped() : ClipTokenizer::from_folder(c.tokenizer),
                     {},
                     shipped ? "shipped" : printable(c.tokenizer)};
  own.chunks.max_length = own.tokenizer.max_length();
  own.chunks.pad_id = own.tokenizer.pad_id();
  out.push_back({"tokenizer", std::move(own)});
  return out;
}

Json chunk_json(const PromptChunk& chunk, const ClipTokenizer& tokenizer, const EmbeddingNames& names) {
  Json pieces = Json::array(), embeddings = Json::array();
  for (const int32_t id : chunk.ids) pieces.push_back(tokenizer.token(id));
  for (const InsertedVector& inserted : chunk.inserted) {
    const std::string& name = names.names()[static_cast<size_t>(inserted.name)];
    embeddings.push_back({{"position", inserted.position}, {"name", name}, {"vector", inserted.vector}});
    pieces[static_cast<size_t>(inserted.position)] =
        concat("embedding ", name, ", vector ", inserted.vector + 1);
  }
  return {{"ids", chunk.ids},
          {"pieces", pieces},
          {"weights", chunk.weights},
          {"eos_position", chunk.eos_position},
          {"embeddings", embeddings}};
}

// What AND and prompt editing make of the prompt: of each part its weight and which text is drawn from which
// call of the UNet to which.
Json scheduled(const std::string& prompt, int calls) {
  Json out = Json::array();
  for (const PromptPart& part : split_prompt_parts(prompt)) {
    const std::vector<std::string> texts = PromptSchedule(part.text).texts(calls);
    Json runs = Json::array();
    for (size_t call = 0; call < texts.size(); ++call) {
      if (call == 0 || texts[call] != texts[call - 1])
        runs.push_back({{"from", call}, {"to", call}, {"text", texts[call]}});
      runs.back()["to"] = call;
    }
    out.push_back({{"weight", part.weight}, {"texts", runs}});
  }
  return out;
}

Json tokenized(const NamedTokenizer& named, const TokenizeCommand& c, const RequestEmbeddings& embeddings) {
  const ModelTokenizer& own = named.own;
  const EmbeddingNames names = embeddings.names(own.tokenizer);
  ChunkOptions options = own.chunks;
  options.embeddings = &names;
  Json out = {
      {"encoder", named.encoder}, {"vocabulary", own.vocabulary}, {"chunk_length", own.chunks.max_length}};
  ChunkedPrompt prompt;
  if (c.plain) {
    PlainTokens plain = plain_tokens(own.tokenizer, c.prompt, options);
    prompt.token_count = plain.chunk.eos_position - 1;
    prompt.chunks.push_back(std::move(plain.chunk));
    out["left_out"] = plain.cut_text;
  } else {
    out["parts"] = scheduled(extract_lora_tags(c.prompt).text, c.steps);
    prompt = chunk_prompt(own.tokenizer, out["parts"][0]["texts"][0]["text"].get<std::string>(), options);
  }
  out["tokens"] = prompt.token_count;
  out["chunks"] = Json::array();
  for (const PromptChunk& chunk : prompt.chunks)
    out["chunks"].push_back(chunk_json(chunk, own.tokenizer, names));
  return out;
}

void print_text(const Json& encoder) {
  const Json& chunks = encoder.at("chunks");
  const Json parts = encoder.value("parts", Json::array());
  if (parts.size() > 1 || (!parts.empty() && parts[0].at("texts").size() > 1)) {
    for (const Json& part : parts)
      for (const Json& text : part.at("texts"))
        fmt::print("calls {} to {}, weight {:g}: {}\n", text.at("from").get<int>(), text.at("to").get<int>(),
                   part.at("weight").get<double>(), printable(text.at("text").get<std::string>(), 1000));
    fmt::print("the first of these texts:\n");
  }
  fmt::print("{}: {} tokens in {} chunk{} of {} ids, vocabulary: {}\n",
             encoder.at("encoder").get<std::string>(), encoder.at("tokens").get<int>(), chunks.size(),
             chunks.size() == 1 ? "" : "s", encoder.at("chunk_length").get<int>(),
             encoder.at("vocabulary").get<std::string>());
  for (size_t n = 0; n < chunks.size(); ++n) {
    const Json& chunk = chunks[n];
    const auto last = chunk.at("eos_position").get<size_t>(), length = chunk.at("ids").size();
    fmt::print("chunk {}\n", n + 1);
    for (size_t i = 0; i <= last; ++i) {
      const auto weight = chunk.at("weights")[i].get<float>();
      fmt::print("  {:>3}  {:>6}  {}{}\n", i, chunk.at("ids")[i].get<int>(),
                 printable(chunk.at("pieces")[i].get<std::string>()),
                 weight == 1.0f ? "" : fmt::format("  weight {:g}", weight));
    }
    if (last + 1 < length)
      fmt::print("  {:>3}  {:>6}  {}  padding, {} times\n", last + 1, chunk.at("ids")[last + 1].get<int>(),
                 printable(chunk.at("pieces")[last + 1].get<std::string>()), length - last - 1);
  }
}

void run_tokenize(const TokenizeCommand& c) {
  const std::string problem = utf8_problem(c.prompt);
  require<UsageError>(problem.empty(), "prompt: ", problem);
  require<UsageError>(c.model.empty() || c.tokenizer.empty(), "expected --model or --tokenizer, got both");
  EmbeddingLibrary library(c.embedding_dir);
  std::vector<EmbeddingUse> uses;
  for (const std::string& use : c.embeddings) uses.push_back(parse_embedding_use(use));
  const RequestEmbeddings embeddings(library, uses);
  Json all = Json::array();
  for (const NamedTokenizer& named : wanted_tokenizers(c)) all.push_back(tokenized(named, c, embeddings));
  if (c.json) return fmt::print("{}\n", all.dump(2));
  for (const Json& encoder : all) print_text(encoder);
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto c = std::make_shared<TokenizeCommand>();
  CLI::App* sub = app.add_subcommand("tokenize", "print a prompt's token ids, pieces, weights and chunks");
  sub->add_option("PROMPT", c->prompt, "the text, with (word:1.2), [word] and BREAK as in A1111")
      ->required()
      ->type_name("");
  add_text(sub, "-m,--model", c->model, "a model, whose text encoders' vocabularies are used [CLIP's]")
      ->type_name("PATH");
  add_text(sub, "--tokenizer", c->tokenizer, "a folder with vocab.json and merges.txt, or tokenizer.json")
      ->type_name("FOLDER");
  sub->add_option("--embedding", c->embeddings, "textual inversion that the prompt may name; several times")
      ->type_name("[NAME=]FILE");
  add_text(sub, "--embedding-dir", c->embedding_dir, "where embeddings are found by name")
      ->type_name("FOLDER");
  add_number(sub, "--steps", c->steps, "calls of the UNet that prompt editing counts by [20]", 1, 2000);
  sub->add_flag("--plain-prompt", c->plain,
                "no weights, one chunk that is cut: Diffusers' reading of a prompt");
  sub->add_flag("--json", c->json, "print JSON");
  sub->callback([c] { run_tokenize(*c); });
}

}  // namespace rocm_sd::cli
