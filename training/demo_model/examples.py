"""Trains what steers the demo model: a LoRA, an embedding and a T2I-Adapter. The model itself stays as it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers import AutoencoderKL, StableDiffusionPipeline, T2IAdapter, UNet2DConditionModel
from peft import LoraConfig, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from transformers import CLIPTextModel, CLIPTokenizer

from demo_model.autoencoder import encode_mean
from demo_model.diffusion import EMPTY_CAPTIONS, create_scheduler
from demo_model.example_pictures import EMBEDDING_TOKEN, Lesson

LORA_RANK = 4
LORA_LAYERS = ["to_q", "to_k", "to_v", "to_out.0", "proj_in", "proj_out", "ff.net.0.proj", "ff.net.2", "conv1", "conv2",
               "conv_in", "conv_out"]
EMBEDDING_VECTORS = 2
EMBEDDING_START = "teal"
ADAPTER_CHANNELS = (96, 128, 128)  # those of the UNet's levels


@dataclass
class Model:
    """The demo model in f32, frozen."""

    unet: UNet2DConditionModel
    text_encoder: CLIPTextModel
    tokenizer: CLIPTokenizer
    vae: AutoencoderKL

    @staticmethod
    def load(folder: Path) -> Model:
        parts = [kind.from_pretrained(folder / name, torch_dtype=torch.float32).requires_grad_(False).eval()
                 for kind, name in ((UNet2DConditionModel, "unet"), (CLIPTextModel, "text_encoder"), (AutoencoderKL, "vae"))]
        return Model(parts[0], parts[1], CLIPTokenizer.from_pretrained(folder / "tokenizer"), parts[2])

    def tokens(self, captions: list[str]) -> torch.Tensor:
        return self.tokenizer(captions, padding="max_length", truncation=True, return_tensors="pt").input_ids

    @torch.no_grad()
    @torch.autocast("cpu", torch.bfloat16)
    def latents(self, pictures: torch.Tensor) -> torch.Tensor:
        """[N,4,16,16] of pictures [N,3,128,128] in [0,1]."""
        parts = [encode_mean(self.vae, part * 2 - 1) for part in pictures.split(32)]
        return torch.cat(parts).float() * self.vae.config.scaling_factor

    @torch.no_grad()
    def contexts(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.text_encoder(input_ids=part).last_hidden_state for part in ids.split(64)])  # [N,77,192]


@dataclass
class Course:
    """How long and how fast: `minutes` of the processor's time in batches, the rate falling from `rate` to 0 by a straight line."""

    minutes: float
    batch: int
    rate: float
    noisy: bool  # mostly high noise levels, where a picture's layout and colours are settled


def velocity_loss(unet: UNet2DConditionModel, latents: torch.Tensor, context: torch.Tensor, noisy: bool,
                  **extra: list[torch.Tensor]) -> torch.Tensor:
    """Mean squared error of the predicted velocity at random noise levels."""
    alphas = create_scheduler().alphas_cumprod
    uniform = torch.rand(len(latents))
    timestep = ((1 - uniform ** 3 if noisy else uniform) * len(alphas)).long().clamp(max=len(alphas) - 1)
    alpha, noise = alphas[timestep].view(-1, 1, 1, 1), torch.randn_like(latents)
    signal, level = alpha.sqrt(), (1 - alpha).sqrt()
    with torch.autocast("cpu", torch.bfloat16):
        predicted = unet(signal * latents + level * noise, timestep, encoder_hidden_states=context, return_dict=False, **extra)[0]
    return (predicted.float() - (signal * noise - level * latents)).square().mean()


def run_course(course: Course, parameters: list[torch.Tensor], count: int, loss_of: Callable[[torch.Tensor], torch.Tensor],
               name: str) -> None:
    """Adam's steps on random rows of `count`; prints the mean loss now and then."""
    optimiser = torch.optim.AdamW(parameters, lr=course.rate, betas=(0.9, 0.99), weight_decay=0.0)
    begin, losses = time.process_time(), []
    while (progress := (time.process_time() - begin) / 60 / course.minutes) < 1:
        optimiser.param_groups[0]["lr"] = course.rate * min(1.0, (len(losses) + 1) / 20) * (1 - progress)
        loss = loss_of(torch.randint(count, (course.batch,)))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        losses.append(loss.item())
        if len(losses) % 25 == 0:
            print(f"{name} {len(losses)} {progress:.0%} loss {sum(losses[-25:]) / 25:.4f}", flush=True)
    print(f"{name}: {len(losses)} steps of {course.batch} in {course.minutes:g} minutes of one core", flush=True)


def with_empty(model: Model, context: torch.Tensor) -> torch.Tensor:
    """Some captions replaced by the empty one, so that guidance's other half learns, too."""
    empty = model.contexts(model.tokens([""]))
    return torch.where(torch.rand(len(context), 1, 1) < EMPTY_CAPTIONS, empty, context)


def train_lora(model: Model, lesson: Lesson, course: Course, file: Path) -> None:
    """A LoRA of the UNet, in the form of Diffusers and PEFT."""
    latents, contexts = model.latents(lesson.pictures), model.contexts(model.tokens(lesson.captions))
    model.unet.add_adapter(LoraConfig(r=LORA_RANK, lora_alpha=LORA_RANK, target_modules=LORA_LAYERS))
    parameters = [parameter for parameter in model.unet.parameters() if parameter.requires_grad]

    def loss_of(rows: torch.Tensor) -> torch.Tensor:
        return velocity_loss(model.unet, latents[rows], with_empty(model, contexts[rows]), course.noisy)

    run_course(course, parameters, len(latents), loss_of, "lora")
    layers = {name: tensor.half() for name, tensor in get_peft_model_state_dict(model.unet).items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    StableDiffusionPipeline.save_lora_weights(file.parent, unet_lora_layers=layers, weight_name=file.name)


def train_embedding(model: Model, lesson: Lesson, course: Course, file: Path, resume: bool) -> None:
    """Vectors that stand for one new word: textual inversion, in the form of Diffusers. resume: goes on from those of the file."""
    latents = model.latents(lesson.pictures)
    table = model.text_encoder.get_input_embeddings().weight
    (start,) = model.tokenizer(EMBEDDING_START, add_special_tokens=False).input_ids
    places = " ".join([EMBEDDING_START] * EMBEDDING_VECTORS)
    ids = model.tokens([caption.replace(EMBEDDING_TOKEN, places) for caption in lesson.captions])
    begin = table[start].repeat(EMBEDDING_VECTORS, 1) + 0.01 * torch.randn(EMBEDDING_VECTORS, table.shape[1])
    vectors = torch.nn.Parameter(load_file(file)[EMBEDDING_TOKEN].float() if resume else begin)
    number = (ids == start).long().cumsum(1) - 1                                             # which vector of the new word

    def context_of(rows: torch.Tensor) -> torch.Tensor:
        new = ids[rows] == start                                                             # [B,77]
        states = torch.where(new[..., None], vectors[number[rows].clamp(0, EMBEDDING_VECTORS - 1)], table[ids[rows]])
        return encode_vectors(model.text_encoder, ids[rows], states)

    def loss_of(rows: torch.Tensor) -> torch.Tensor:
        return velocity_loss(model.unet, latents[rows], context_of(rows), course.noisy)

    run_course(course, [vectors], len(latents), loss_of, "embedding")
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({EMBEDDING_TOKEN: vectors.detach().half()}, file, metadata={"format": "pt"})


def encode_vectors(text_encoder: CLIPTextModel, ids: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """The text encoder's answer to vectors [B,77,192] in place of those of its table."""
    layer = text_encoder.get_input_embeddings()
    hook = layer.register_forward_hook(lambda *_: states)
    try:
        return text_encoder(input_ids=ids).last_hidden_state
    finally:
        hook.remove()


def train_adapter(model: Model, lesson: Lesson, course: Course, folder: Path, resume: bool) -> None:
    """A T2I-Adapter for Canny's edges, as a folder of Diffusers. resume: goes on from the one in the folder."""
    latents, contexts = model.latents(lesson.pictures), model.contexts(model.tokens(lesson.captions))
    adapter = T2IAdapter(in_channels=1, channels=list(ADAPTER_CHANNELS), num_res_blocks=2, downscale_factor=8,
                         adapter_type="full_adapter")
    if resume:
        adapter = T2IAdapter.from_pretrained(folder, torch_dtype=torch.float32)

    def loss_of(rows: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            maps = adapter(lesson.maps[rows])
        return velocity_loss(model.unet, latents[rows], with_empty(model, contexts[rows]), course.noisy,
                             down_intrablock_additional_residuals=list(maps))

    run_course(course, list(adapter.parameters()), len(latents), loss_of, "adapter")
    adapter.half().save_pretrained(folder, safe_serialization=True)
