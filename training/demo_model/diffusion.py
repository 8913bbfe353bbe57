"""Stage `unet`: the text encoder and the UNet, trained together on the autoencoder's latents."""

from __future__ import annotations

import random
from pathlib import Path

import torch
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from demo_model.autoencoder import encode_mean
from demo_model.bpe import MODEL_MAX_LENGTH
from demo_model.captions import random_caption
from demo_model.emoji import COLOURS, SIZES, Composer, EmojiSet
from demo_model.schedule import AveragedWeights, Course, make_optimiser, save_half

LEARNING_RATE = 1e-3
EMPTY_CAPTIONS = 0.1      # so that classifier-free guidance has an unconditional answer
HELD_OUT = 0.1            # fraction of (emoji, size, background) never trained on, kept for measuring
HELD_OUT_SEED = 20
CAPTION_SEED = 21
TEXT_WIDTH = 192
COURSE_FILE = "unet_course.json"


def create_scheduler() -> DDIMScheduler:
    return DDIMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", num_train_timesteps=1000,
        prediction_type="v_prediction", clip_sample=False, set_alpha_to_one=False, steps_offset=1)


def create_text_encoder(tokenizer: CLIPTokenizer) -> CLIPTextModel:
    return CLIPTextModel(CLIPTextConfig(
        vocab_size=len(tokenizer), hidden_size=TEXT_WIDTH, intermediate_size=4 * TEXT_WIDTH, num_hidden_layers=2,
        num_attention_heads=3, max_position_embeddings=MODEL_MAX_LENGTH, hidden_act="quick_gelu",
        projection_dim=TEXT_WIDTH, bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id))


def create_unet() -> UNet2DConditionModel:
    """In this class `attention_head_dim` means the number of heads of each level: 32 channels a head here."""
    return UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, norm_num_groups=16,
        block_out_channels=(96, 128, 128), attention_head_dim=[3, 4, 4], cross_attention_dim=TEXT_WIDTH,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"))


def held_out_mask(emoji_count: int) -> torch.Tensor:
    """True for the combinations [emoji, size, background] that training never sees."""
    generator = torch.Generator().manual_seed(HELD_OUT_SEED)
    return torch.rand(emoji_count, len(SIZES), len(COLOURS), generator=generator) < HELD_OUT


class Lessons:
    """All latents and a pool of captions, on the device, drawn from at random."""

    def __init__(self, emoji: EmojiSet, compose: Composer, vae: AutoencoderKL, tokenizer: CLIPTokenizer, pool: int):
        device = compose.layers.device
        shape = (len(emoji), len(SIZES), len(COLOURS))
        chosen = torch.nonzero(~held_out_mask(len(emoji)))                                   # [M, 3]
        self.weights = self._weights(chosen).to(device)
        self.latents = self._encode(chosen.to(device), compose, vae)                         # [M, 4, 16, 16] half
        self.captions = self._tokenise(chosen, emoji, tokenizer, pool).to(device)            # [M, pool, 77] int16
        self.empty = tokenizer("", padding="max_length", return_tensors="pt").input_ids.to(device)  # [1, 77]
        print(f"{len(chosen)} of {shape[0] * shape[1] * shape[2]} pictures, {pool} captions each", flush=True)

    @staticmethod
    def _weights(chosen: torch.Tensor) -> torch.Tensor:
        """Medium pictures and white backgrounds, which captions may leave unsaid, come up more often."""
        size = torch.tensor([1.0, 1.3, 1.0])[chosen[:, 1]]
        return size * torch.where(chosen[:, 2] == 0, 3.0, 1.0)

    @staticmethod
    def _encode(chosen: torch.Tensor, compose: Composer, vae: AutoencoderKL) -> torch.Tensor:
        latents = []
        for emoji, size, colour in (part.unbind(1) for part in chosen.split(256)):
            pictures = compose(emoji, size, compose.palette[colour]) * 2 - 1
            latents.append((encode_mean(vae, pictures) * vae.config.scaling_factor).half())
        return torch.cat(latents)

    @staticmethod
    def _tokenise(chosen: torch.Tensor, emoji: EmojiSet, tokenizer: CLIPTokenizer, pool: int) -> torch.Tensor:
        rng = random.Random(CAPTION_SEED)
        sizes, colours = list(SIZES), list(COLOURS)
        texts = [random_caption(emoji.names[e], emoji.keywords[e], sizes[s], colours[c], rng)
                 for e, s, c in chosen.tolist() for _ in range(pool)]
        tokens = []
        for start in range(0, len(texts), 65536):
            batch = tokenizer(texts[start:start + 65536], padding="max_length", truncation=True, return_tensors="np")
            tokens.append(torch.from_numpy(batch.input_ids).to(torch.int16))
        return torch.cat(tokens).view(len(chosen), pool, MODEL_MAX_LENGTH)

    def draw(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Latents [B, 4, 16, 16] and token ids [B, 77]."""
        device = self.latents.device
        row = torch.multinomial(self.weights, count, replacement=True)
        column = torch.randint(self.captions.shape[1], (count,), device=device)
        ids = self.captions[row, column].long()
        ids = torch.where(torch.rand(count, 1, device=device) < EMPTY_CAPTIONS, self.empty, ids)
        return self.latents[row].float(), ids


def training_loss(text_encoder: CLIPTextModel, unet: UNet2DConditionModel, latents: torch.Tensor, ids: torch.Tensor,
                  timestep: torch.Tensor, signal: torch.Tensor, noise_level: torch.Tensor) -> torch.Tensor:
    """Mean squared error of the predicted velocity; signal and noise_level [B, 1, 1, 1]."""
    noise = torch.randn_like(latents)
    with torch.autocast(latents.device.type, torch.bfloat16):
        context = text_encoder(input_ids=ids).last_hidden_state                              # [B, 77, 192]
        noisy = signal * latents + noise_level * noise                                       # [B, 4, 16, 16]
        predicted = unet(noisy, timestep, encoder_hidden_states=context, return_dict=False)[0]
    velocity = signal * noise - noise_level * latents
    return (predicted.float() - velocity).square().mean()


def create_models(work: Path, tokenizer: CLIPTokenizer, resumed: bool) -> list[torch.nn.Module]:
    if not resumed:
        return [create_text_encoder(tokenizer), create_unet()]
    return [CLIPTextModel.from_pretrained(work / "text_encoder", torch_dtype=torch.float32),
            UNet2DConditionModel.from_pretrained(work / "unet", torch_dtype=torch.float32)]


def train_diffusion(emoji: EmojiSet, compose: Composer, work: Path, batch: int, pool: int, course: Course) -> None:
    """Trains until the course ends and leaves the averaged weights in work/text_encoder and work/unet."""
    device = compose.layers.device
    tokenizer = CLIPTokenizer.from_pretrained(work / "tokenizer")
    vae = AutoencoderKL.from_pretrained(work / "vae", torch_dtype=torch.float32).to(device)
    lessons = Lessons(emoji, compose, vae, tokenizer, pool)
    models = create_models(work, tokenizer, course.resume(work / COURSE_FILE))
    text_encoder, unet = (model.to(device, memory_format=torch.channels_last).train() for model in models)
    average = AveragedWeights([text_encoder, unet], decay=0.9995)
    optimiser = make_optimiser([text_encoder, unet], LEARNING_RATE)
    loss_of = torch.compile(training_loss) if device.type == "cuda" else training_loss
    alphas = create_scheduler().alphas_cumprod.to(device)
    course.start()
    while not course.finished:
        optimiser.param_groups[0]["lr"] = course.learning_rate(LEARNING_RATE)
        latents, ids = lessons.draw(batch)
        timestep = torch.randint(len(alphas), (batch,), device=device)
        alpha = alphas[timestep].view(-1, 1, 1, 1)
        loss = loss_of(text_encoder, unet, latents, ids, timestep, alpha.sqrt(), (1 - alpha).sqrt())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(average.live, 1.0)
        optimiser.step()
        average.update()
        if course.step % 100 == 0:
            print(f"unet {course.step} {course.seconds:.0f}s loss {loss.item():.4f}", flush=True)
        course.advance()
    for trained, name in zip(average.copies, ("text_encoder", "unet")):
        save_half(trained, work / name)
    course.save(work / COURSE_FILE)
