"""Sequence to sequence: the decoder goes on from a copy of the encoder's memory."""

from __future__ import annotations

import torch

from comparing import assert_all_close, assert_close
from mgmem import EncoderDecoder, Pyramid

SPEC, TAIL = "0-1:3 0-1:3 0-2:4", "0-1:4 0-1:4 0:2"


def test_the_decoder_starts_from_the_encoders_state_layer_by_layer() -> None:
    pair = EncoderDecoder(2, SPEC, TAIL)
    x, go_on = torch.randn(4, 3, 2, 3, 3), torch.zeros(5, 3, 2, 3, 3)
    (outputs,), state = pair(x, queries=(go_on,))
    _, encoded = pair.encoder(x)
    h, _ = pair.decoder(go_on, encoded)
    expected = [pair.tail(h[-1].map(lambda grid, t=t: grid[t]))[0] for t in range(5)]  # type: ignore[misc]
    assert_close(outputs, torch.stack(expected), 1e-5)
    assert_all_close(state.tensors(), encoded.tensors(), 1e-6)


def test_encoder_and_decoder_have_weights_of_their_own() -> None:
    pair = EncoderDecoder(2, SPEC, TAIL)
    x = torch.randn(3, 1, 2, 3, 3)
    (outputs,), _ = pair(x, queries=(x,))
    outputs.square().sum().backward()
    for half in (pair.encoder, pair.decoder, pair.tail):
        assert all(bool(parameter.grad.any()) for parameter in half.parameters())  # type: ignore[union-attr]
    assert not any(p is q for p in pair.encoder.parameters() for q in pair.decoder.parameters())


def test_encoding_in_chunks_is_encoding_at_once() -> None:
    pair = EncoderDecoder(2, SPEC, TAIL)
    x, go_on = torch.randn(5, 2, 2, 3, 3), torch.zeros(2, 2, 2, 3, 3)
    (at_once,), _ = pair(x, queries=(go_on,))
    _, state = pair(x[:3], queries=(go_on,))
    (in_chunks,), _ = pair(x[3:], state, queries=(go_on,))
    assert_close(in_chunks, at_once, 1e-5)


def test_sequences_of_different_lengths_and_resets() -> None:
    pair = EncoderDecoder(2, SPEC, TAIL)
    x, go_on = torch.randn(5, 2, 2, 3, 3), torch.zeros(2, 2, 2, 3, 3)
    (padded,), _ = pair(x, queries=(go_on,), lengths=torch.tensor([5, 3]))
    (short,), _ = pair(x[:3], queries=(go_on,))
    assert_close(padded[:, 1], short[:, 1], 1e-5)
    reset = torch.zeros(5, 2, dtype=torch.bool)
    reset[2] = True
    (fresh,), _ = pair(x, queries=(go_on,), reset=reset)
    (late,), _ = pair(x[2:], queries=(go_on,))
    assert_close(fresh, late, 1e-5)


def test_a_head_follows_the_tail_and_images_are_resized() -> None:
    head = torch.nn.Sequential(torch.nn.Flatten(2), torch.nn.Linear(18, 10))
    pair = EncoderDecoder("0-1:1", SPEC, TAIL, head=head, fit="resize")
    image = torch.randn(3, 2, 1, 12, 12)
    (outputs,), _ = pair(image, queries=(image[:1],))
    assert outputs.shape == (1, 2, 10)
    pyramid = Pyramid(0, (image[..., ::4, ::4], image[..., ::2, ::2]))
    assert_close(
        pair.encoder(pyramid)[0][0].finest, pair.encoder(pair._fitted(image))[0][0].finest, 1e-6
    )


def test_dtype_options_and_state_pass_through() -> None:
    pair = EncoderDecoder(
        2, SPEC, TAIL, (2,), dtype=torch.float64, peephole="channel", norm=True, kernel=5
    ).eval()
    x = torch.randn(3, 2, 2, 2, dtype=torch.float64)
    (outputs,), state = pair(x, queries=(x[:1],))
    assert outputs.dtype == torch.float64
    assert pair.cells == state.cells == pair.initial_state(1).cells
    again = pair.state_from_tensors(state.tensors())
    (one,), _ = pair(x, state, queries=(x[:1],))
    (two,), _ = pair(x, again, queries=(x[:1],))
    assert torch.equal(one, two)
