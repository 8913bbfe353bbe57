"""Stage `vae`: an AutoencoderKL that maps 128 x 128 pictures to 16 x 16 x 4 latents."""

from __future__ import annotations

from pathlib import Path

import torch
from diffusers import AutoencoderKL
from torch.nn.functional import avg_pool2d

from demo_model.emoji import COLOURS, SIZES, Composer
from demo_model.schedule import AveragedWeights, Course, make_optimiser, save_half

LEARNING_RATE = 1.5e-3
KL_WEIGHT = 2e-4
EDGE_WEIGHT = 0.5
RANDOM_BACKGROUND = 0.15  # fraction of pictures on a colour that has no name
COURSE_FILE = "vae_course.json"


def create_autoencoder() -> AutoencoderKL:
    return AutoencoderKL(
        sample_size=128, latent_channels=4, norm_num_groups=16, layers_per_block=1,
        block_out_channels=(32, 64, 96, 128),
        down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4)


def edges(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[..., 1:, :] - x[..., :-1, :], x[..., :, 1:] - x[..., :, :-1]


def picture_loss(drawn: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """L1 on the picture, and on its edges at full, half and quarter size; x [B, 3, 128, 128]."""
    loss = (drawn - wanted).abs().mean()
    for _ in range(3):
        for edge_drawn, edge_wanted in zip(edges(drawn), edges(wanted)):
            loss = loss + EDGE_WEIGHT * (edge_drawn - edge_wanted).abs().mean()
        drawn, wanted = avg_pool2d(drawn, 2), avg_pool2d(wanted, 2)
    return loss


def training_loss(vae: AutoencoderKL, pictures: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and its plain L1 part for pictures [B, 3, 128, 128] in [-1, 1]."""
    with torch.autocast(pictures.device.type, torch.bfloat16):
        moments = vae.quant_conv(vae.encoder(pictures))                                     # [B, 8, 16, 16]
        mean, log_variance = moments.float().chunk(2, dim=1)
        log_variance = log_variance.clamp(-30, 20)
        latents = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)             # [B, 4, 16, 16]
        drawn = vae.decoder(vae.post_quant_conv(latents))                                   # [B, 3, 128, 128]
    drawn = drawn.float()
    divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).mean()
    return picture_loss(drawn, pictures) + KL_WEIGHT * divergence, (drawn - pictures).abs().mean().detach()


def random_pictures(compose: Composer, count: int) -> torch.Tensor:
    """Random emoji, sizes and backgrounds [B, 3, 128, 128] in [-1, 1]."""
    device = compose.layers.device
    emoji = torch.randint(compose.layers.shape[1], (count,), device=device)
    size = torch.randint(len(SIZES), (count,), device=device)
    background = compose.palette[torch.randint(len(COLOURS), (count,), device=device)]       # [B, 3]
    unnamed = torch.rand(count, 1, device=device) < RANDOM_BACKGROUND
    background = torch.where(unnamed, torch.rand_like(background), background)
    return compose(emoji, size, background).to(memory_format=torch.channels_last) * 2 - 1


def train_autoencoder(compose: Composer, work: Path, batch: int, course: Course) -> None:
    """Trains until the course ends and leaves the averaged weights in work/vae."""
    device = compose.layers.device
    resumed = course.resume(work / COURSE_FILE)
    vae = AutoencoderKL.from_pretrained(work / "vae", torch_dtype=torch.float32) if resumed else create_autoencoder()
    vae = vae.to(device, memory_format=torch.channels_last).train()
    average = AveragedWeights([vae], decay=0.999)
    optimiser = make_optimiser([vae], LEARNING_RATE)
    loss_of = torch.compile(training_loss) if device.type == "cuda" else training_loss
    course.start()
    while not course.finished:
        optimiser.param_groups[0]["lr"] = course.learning_rate(LEARNING_RATE)
        loss, l1 = loss_of(vae, random_pictures(compose, batch))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(vae.parameters(), 1.0)
        optimiser.step()
        average.update()
        if course.step % 100 == 0:
            print(f"vae {course.step} {course.seconds:.0f}s loss {loss.item():.4f} l1 {l1.item():.4f}", flush=True)
        course.advance()
    trained = average.copies[0]
    trained.register_to_config(scaling_factor=measure_scaling(trained, compose))
    save_half(trained, work / "vae")
    course.save(work / COURSE_FILE)


@torch.no_grad()
def encode_mean(vae: AutoencoderKL, pictures: torch.Tensor) -> torch.Tensor:
    with torch.autocast(pictures.device.type, torch.bfloat16):
        return vae.encode(pictures).latent_dist.mean.float()


@torch.no_grad()
def measure_scaling(vae: AutoencoderKL, compose: Composer) -> float:
    """The factor that gives the latents of random pictures unit standard deviation."""
    latents = torch.cat([encode_mean(vae, random_pictures(compose, 64)) for _ in range(8)])
    return round(1 / latents.std().item(), 5)
