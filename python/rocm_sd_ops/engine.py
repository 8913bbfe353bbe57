"""ROCmOptimizedPipeline: the C++ engine behind a call like Diffusers'. It needs librocm_sd.so (ROCM_SD_LIBRARY names it;
else beside the package's own library, below the build it came from, or where the system's loader looks). The package imports
PyTorch, but nothing of it draws: pictures are numpy arrays, which torch.from_numpy takes without a copy.

The engine is reached through its C interface with ctypes, so that one package serves every CPython and no compiler meets Python's
own headers; callbacks, live weights, pictures and noise pass as pointers."""

from __future__ import annotations

import ctypes
import tempfile
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from ctypes import POINTER, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Optional, Union

import numpy as np

from ._engine_gate import Gate
from ._engine_images import add_ip_images, adapter_path, ip_options
from ._engine_library import Callbacks, Cancelled, EngineError, PreviewFn, ProgressFn, Result, engine_library, engine_version, option_list
from ._engine_values import (TYPES, EngineOutput, controls_of, device_name, dtype_name, inputs_of, listed, live_tensors, output_of, path_of, seed_of,
                             write_configs)

__all__ = ["Cancelled", "EngineError", "EngineOutput", "Progress", "ROCmOptimizedPipeline", "engine_library", "engine_version"]
Progress = Callable[[str, int, int, float], Any]
Preview = Callable[[int, int, int, Any], Any]


class ROCmOptimizedPipeline:
    """A Stable Diffusion model in the C++ engine.

        pipe = ROCmOptimizedPipeline.from_pretrained("models/demo")
        image = pipe("a smiling cat", num_inference_steps=12, seed=1).images[0]

    One call at a time, with devices="cuda:0,cuda:1" one for each of them (draw_each() keeps them busy); other threads wait, and a
    callback may not use the pipeline that called it (but cancel() it). Errors are EngineError with the engine's sentence.
    """

    def __init__(self, model: Union[str, Path, None] = None, device: Any = "auto", dtype: str = "auto",
                 progress: Optional[Progress] = None, tensors: Optional[dict[str, dict[str, Any]]] = None,
                 torch_dtype: Any = None, **options: Any) -> None:
        """options: the command line's model options (vae, taesd, vram_budget, offload, mmap, ...). device and torch_dtype also as
        PyTorch has them. tensors: by component ("unet", "vae", ...) and name, numpy or through DLPack on the host, in place of the
        folder's weight files; on the CPU they are used where they lie (row-major ones of the type that is computed in). controlnet: a
        ControlNet's folder or file, or a list of them, for calls that bring a control_image and name none. Without a model nothing is
        loaded: load() does it."""
        self._handle = c_void_p()
        self._library = engine_library()
        self._gate = Gate()
        self._drawers = 1  # calls that the engine serves at the same time
        self._folder: Optional[tempfile.TemporaryDirectory] = None
        self._closed = False
        self._controlnet = options.pop("controlnet", None)
        self._settings: dict[str, Any] = {"device": device_name(device), "dtype": dtype_name(torch_dtype, dtype), **options}
        self._tensors = tensors or {}
        self._embeddings: dict[str, str] = {}
        self._ip_adapters: list[str] = []
        self._ip_settings: dict[str, Any] = {}
        self._model = model
        if model is not None:
            self._open(progress)

    def _open(self, progress: Optional[Progress] = None) -> None:
        wanted = option_list({"model": self._model, **self._settings})
        self._held, live = live_tensors(self._tensors)
        self._check(*self._run(progress, lambda c: self._library.rocm_sd_create_live(wanted, live, len(live), c,
                                                                                    ctypes.byref(self._handle))))
        self._drawers = self._library.rocm_sd_drawers(self._handle)

    def load(self, model: Union[str, Path], progress: Optional[Progress] = None, **options: Any) -> "ROCmOptimizedPipeline":
        """A Diffusers folder or a single .safetensors file in place of what was loaded before; options as in the constructor are
        added to those given there. Returns the pipeline."""
        if "torch_dtype" in options:
            options["dtype"] = dtype_name(options.pop("torch_dtype"), options.get("dtype", "auto"))
        if "device" in options:
            options["device"] = device_name(options["device"])
        with self._gate.alone():
            self._give_back()
            before, self._settings = self._settings, self._settings | options
            self._closed, self._model = False, model
            try:
                self._open(progress)
            except BaseException:
                self._settings, self._model = before, None
                raise
        return self

    def to(self, *where: Any, device: Any = None, dtype: Any = None) -> "ROCmOptimizedPipeline":
        """As a Diffusers pipeline's: a device ("cpu", "cuda", "cuda:1", torch.device), a torch.dtype, or both. The model is loaded
        again where that changes something. Returns the pipeline. Raises EngineError for a device that there is not."""
        with self._gate.alone():
            changed = dict(self._settings)
            for value in (*where, device, dtype):
                if value is None:
                    continue
                if str(value).startswith("torch.") and str(value).removeprefix("torch.") in TYPES:
                    changed["dtype"] = dtype_name(value, "auto")
                else:
                    changed["device"] = device_name(value)
            if changed != self._settings:
                self._change(changed)
        return self

    def _change(self, settings: dict[str, Any]) -> None:
        before, self._settings = self._settings, settings
        if not self._handle:
            return
        old, self._handle = self._handle, c_void_p()
        try:
            self._open()
        except BaseException:
            self._handle, self._settings = old, before  # what was loaded stays
            raise
        self._library.rocm_sd_free(old)

    @classmethod
    def from_pretrained(cls, model: Union[str, Path], **options: Any) -> "ROCmOptimizedPipeline":
        """A Diffusers folder or a single .safetensors file. options: as in the constructor, torch_dtype among them."""
        return cls(model, **options)

    @classmethod
    def from_pipeline(cls, pipe: Any, **options: Any) -> "ROCmOptimizedPipeline":
        """A live Diffusers pipeline's weights: on the CPU the pipeline's own memory wherever the engine computes in its type
        and the kernels take the layout (so later changes of the weights may or may not be seen), else a copy. dtype defaults
        to the pipeline's."""
        import torch

        folder = tempfile.TemporaryDirectory(prefix="rocm-sd-")
        tensors: dict[str, dict[str, Any]] = {}
        for name in ("unet", "vae", "text_encoder", "text_encoder_2"):
            model = getattr(pipe, name, None)
            if model is not None:
                tensors[name] = {k: v.detach().contiguous().cpu() for k, v in model.state_dict().items() if v.is_floating_point()}
        write_configs(pipe, Path(folder.name))
        dtype = {torch.float32: "f32", torch.bfloat16: "bf16"}.get(pipe.unet.dtype, "auto")
        try:
            made = cls(folder.name, **({"tensors": tensors, "dtype": dtype} | options))
        except BaseException:
            folder.cleanup()
            raise
        made._folder = folder
        return made

    def load_textual_inversion(self, path: Union[str, Path], token: Optional[str] = None) -> None:
        """Vectors of a .safetensors file, for which later prompts may write its name or the token that it holds; with `token`
        that name only."""
        if token is not None and (not token or "=" in token):
            raise ValueError(f"token {token!r}: expected a name without =")
        self._embeddings[token if token is not None else str(path)] = f"{token}={path}" if token is not None else str(path)

    def unload_textual_inversion(self, token: Optional[str] = None) -> None:
        """Forgets what was loaded as `token` (or as that path), or everything."""
        if token is None:
            self._embeddings.clear()
        elif self._embeddings.pop(token, None) is None:
            raise ValueError(f"token {token!r}: no textual inversion was loaded as that, only {sorted(self._embeddings)}")

    def load_ip_adapter(self, folder: Any, subfolder: Any = None, weight_name: Any = None, image_encoder: Any = None) -> None:
        """Images as prompts in later calls: Diffusers' folder, subfolder and weight_name (lists for several adapters), or an adapter's
        .safetensors file. image_encoder: its folder or file, by default image_encoder beside the adapter. In place of earlier ones."""
        names = weight_name if isinstance(weight_name, (list, tuple)) else [weight_name]
        several = max(len(names), len(listed(folder)), len(listed(subfolder)))

        def each(value: Any) -> list[Any]:
            return list(value) if isinstance(value, (list, tuple)) and len(value) > 1 else [*listed(value), None][:1] * several

        self._ip_adapters = [adapter_path(*one) for one in zip(each(folder), each(subfolder), each(weight_name))]
        self._ip_settings = {} if image_encoder is None else {"image_encoder": image_encoder}

    def set_ip_adapter_scale(self, scale: Any) -> None:
        """How strongly later calls follow their images: a number, or one for each adapter."""
        self._ip_settings["ip_weight"] = scale

    def unload_ip_adapter(self) -> None:
        self._ip_adapters, self._ip_settings = [], {}

    def cancel(self) -> None:
        """From another thread: stops the running calls within a step; they raise Cancelled."""
        self._gate.cancel()

    def plan(self, width: int = 0, height: int = 0, batch: int = 1, **options: Any) -> int:
        """Bytes that such a call will take in all: weights, arena and buffers."""
        total = c_uint64()
        wanted = option_list({"prompt": "", "width": width or None, "height": height or None, "batch": batch, **options})
        with self._gate.alone():
            self._check_open()
            self._check(self._library.rocm_sd_plan(self._handle, wanted, ctypes.byref(total)), None)
        return total.value

    def __call__(self, prompt: Union[str, list[str]], negative_prompt: Optional[str] = None, height: Optional[int] = None, width: Optional[int] = None,
                 num_inference_steps: Optional[int] = None, guidance_scale: Optional[float] = None, num_images_per_prompt: int = 1,
                 seed: int = -1, image: Any = None, mask_image: Any = None, strength: float = 0.75,
                 initial_noise: Any = None, init_latents: Any = None, depth_map: Any = None, output_type: str = "pil",
                 callback: Optional[Progress] = None, generator: Any = None, control_image: Any = None, controlnet: Any = None,
                 controlnet_conditioning_scale: Any = None, control_guidance_start: Any = None, control_guidance_end: Any = None,
                 guess_mode: bool = False, control_preprocess: Any = None, control_resize: Any = None,
                 control_type: Any = None, control_mask: Any = None, ip_adapter: Any = None, ip_adapter_image: Any = None,
                 ip_adapter_image_embeds: Any = None, ip_adapter_scale: Any = None, ip_adapter_start: Any = None, ip_adapter_end: Any = None,
                 ip_adapter_mask: Any = None, preview_callback: Optional[Preview] = None, **options: Any) -> EngineOutput:
        """Draws. prompt: a list is a batch with a prompt for each image (num_images_per_prompt of each), which may name different LoRAs
        with lora_mode="runtime". image and mask_image: a path, a PIL picture, or [H,W,3] (mask [H,W]) uint8, or float in 0..1, as numpy or
        through DLPack. initial_noise: [B,4,height/8,width/8] standard normal in place of the seed's. init_latents: [B,4,height/8,width/8]
        in place of an image, with denoising_start as another pipeline's denoising_end left them. depth_map: grey [H,W] for depth
        models. output_type: "pil", "np" (uint8 [B,H,W,3]) or "pt" (a tensor on the same memory). num_inference_steps
        and guidance_scale: absent, what the model asks for (20 and 7.0, distilled models less). seed: of the first
        picture, -1 for a random one. generator: a torch.Generator in place of the seed; a fresh one draws what Diffusers draws with it (its
        seed and noise), and each call takes a number from it, so that the next call draws another picture. callback(stage, step, total, seconds): a true result cancels; an exception in it does,
        too, and is raised here. control_image: what the ControlNets see, a picture as `image` for each, or a list; controlnet: their
        folders or files, by default the constructor's; controlnet_conditioning_scale, control_guidance_start, control_guidance_end and
        guess_mode as in Diffusers, control_preprocess, control_resize and control_type (of a union ControlNet) as on the command line, each one value for all or a
        list; control_image may be a list of lists, a picture for each image of the batch; control_mask: where each acts, or None.
        ip_adapter_image: images as prompts, for each adapter one or a list (or a list of lists, those of each image of the batch), or
        ip_adapter_image_embeds as in Diffusers; ip_adapter: the
        adapters' files, by default those of load_ip_adapter(); ip_adapter_mask: for each adapter a mask for each of its images;
        ip_adapter_scale, ip_adapter_start and ip_adapter_end: one for all or a list.
        preview_callback(image, step, total, pixels): a look at the picture between steps, [H,W,3] uint8, by preview="proj" (the default
        then, small), "tae" or "vae", every preview_interval steps.
        options: the command line's (sampler, schedule, clip_skip, hires_scale, only_masked, outpaint, ...)."""
        if output_type not in ("pil", "np", "pt"):
            raise ValueError(f"output_type {output_type!r}: expected pil, np or pt")
        prompts = None
        if isinstance(prompt, (list, tuple)) and prompt and all(isinstance(text, str) for text in prompt):
            prompts = [text for text in prompt for _ in range(num_images_per_prompt)]
            prompt, num_images_per_prompt = prompts[0], len(prompts)
        for name, text in (("prompt", prompt), ("negative_prompt", negative_prompt)):
            if text is not None and not isinstance(text, str):  # a list, which Diffusers takes, would be joined to another text
                raise TypeError(f"{name}: expected a str, got {type(text).__name__}")
        if controlnet is None and control_image is not None:
            controlnet = self._controlnet
        controls, control_images = controls_of(controlnet, control_image, {
            "control_strength": controlnet_conditioning_scale, "control_start": control_guidance_start,
            "control_end": control_guidance_end, "control_mode": "guess" if guess_mode else None,
            "control_preprocess": control_preprocess, "control_resize": control_resize, "control_type": control_type})
        inputs, held = inputs_of(image, mask_image, initial_noise, init_latents, depth_map, control_images, listed(control_mask),
                                 len(controls.get("control", [])))
        adapters = listed(ip_adapter) or (self._ip_adapters if ip_adapter_image is not None or ip_adapter_image_embeds is not None else [])
        images = ip_options(adapters, (self._ip_settings if adapters is self._ip_adapters else {}) | {
            name: value for name, value in (("ip_weight", ip_adapter_scale), ("ip_start", ip_adapter_start), ("ip_end", ip_adapter_end),
                                            ("image_encoder", options.pop("image_encoder", None))) if value is not None})
        seen = add_ip_images(inputs, len(adapters), ip_adapter_image, ip_adapter_image_embeds, ip_adapter_mask)
        with self._gate.drawing(self._drawers):
            self._check_open()
            if generator is not None:
                seed, rng = seed_of(generator)
                options = {"rng": rng} | options
            if preview_callback is not None:
                options.setdefault("preview", "proj")
            options["embedding"] = [*self._embeddings.values(), *listed(options.get("embedding"))]
            wanted = option_list({
                "prompt": prompt, "image_prompt": prompts, "negative_prompt": negative_prompt, "width": width, "height": height,
                "steps": num_inference_steps, "cfg_scale": guidance_scale, "batch": num_images_per_prompt, "seed": seed,
                "init_image": path_of(image), "mask": path_of(mask_image),
                "depth": path_of(depth_map), **(dict(mask_downscale="nearest", mask_blend="latents") if mask_image is not None else {}),
                "strength": strength if image is not None or init_latents is not None else None, **controls, **images, **options})
            result = POINTER(Result)()
            status, error = self._run(callback, lambda c: self._library.rocm_sd_generate_from(self._handle, wanted, ctypes.byref(inputs),
                                                                                              c, ctypes.byref(result)), preview_callback)
            del held, seen
            self._check(status, error)
            try:
                return output_of(result.contents, output_type)
            finally:
                self._library.rocm_sd_result_free(result)

    def draw_each(self, calls: Iterable[dict[str, Any]]) -> Iterator[EngineOutput]:
        """Calls with these arguments, on all devices at once; their outputs in the order of the calls, the first while later ones are
        drawn: for output in pipe.draw_each({"prompt": "a cat", "seed": seed} for seed in range(16)). What a call raises is raised
        after the outputs of those before it."""
        waiting: deque[Future[EngineOutput]] = deque()
        pool = ThreadPoolExecutor(max_workers=max(1, self._drawers))
        try:
            for arguments in calls:
                waiting.append(pool.submit(self, **arguments))
                while len(waiting) >= 3 * max(1, self._drawers):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for call in waiting:
                call.cancel()
            if waiting:
                self.cancel()
            pool.shutdown()

    def _run(self, callback: Optional[Progress], call: Callable,
             preview_callback: Optional[Preview] = None) -> tuple[int, Optional[BaseException]]:
        raised: list[BaseException] = []

        def progress(_user: Any, stage: bytes, step: int, total: int, seconds: float) -> int:
            try:
                if raised:
                    return 1
                with self._gate.callback():
                    return 1 if callback is not None and callback(stage.decode(), step, total, seconds) else 0
            except BaseException as error:  # noqa: BLE001 (raised again once the engine has returned)
                raised.append(error)
                return 1

        def preview(_user: Any, image: int, step: int, total: int, width: int, height: int, rgb: Any, _seconds: float) -> None:
            try:
                with self._gate.callback():
                    if not raised:
                        preview_callback(image, step, total, np.ctypeslib.as_array(rgb, (height, width, 3)).copy())
            except BaseException as error:  # noqa: BLE001 (raised again once the engine has returned)
                raised.append(error)

        function = ProgressFn(progress)
        looks = PreviewFn(preview) if preview_callback is not None else PreviewFn()
        with self._gate.cancellable() as cancel:
            callbacks = Callbacks(function, None, ctypes.pointer(cancel), looks)
            status = call(ctypes.byref(callbacks))
        return status, raised[0] if raised else None

    def _check_open(self) -> None:
        if self._handle:
            return
        raise EngineError(2, "the pipeline was closed" if self._closed else
                          "no model is loaded: ROCmOptimizedPipeline.from_pretrained(PATH), or load(PATH) of this one")

    def _check(self, status: int, error: Optional[BaseException]) -> None:
        if status == 0:
            return
        message = self._library.rocm_sd_last_error().decode()
        if error is not None:
            raise error
        raise (Cancelled if status == 6 else EngineError)(status, message)

    def close(self) -> None:
        """Gives the memory back; load() makes the object usable again."""
        with self._gate.alone():
            self._give_back()

    def _give_back(self) -> None:
        self._closed, self._held, self._tensors = True, [], {}
        handle, self._handle = getattr(self, "_handle", None), c_void_p()
        if handle:
            self._library.rocm_sd_free(handle)
        folder, self._folder = getattr(self, "_folder", None), None
        if folder is not None:
            folder.cleanup()

    def __enter__(self) -> "ROCmOptimizedPipeline":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __del__(self) -> None:
        self._give_back()
