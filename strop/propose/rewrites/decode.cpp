// One decode step of a Llama-family model in float32: one parallel region, weights read in place.
//
// Every phase splits its rows over the threads; a barrier ends it. What is small (norms, rotation,
// the merge of attention parts) every thread does for itself rather than wait once more.

#include "product.h"

#include <omp.h>

namespace {

struct Layer {
  const float *norm_in, *norm_post, *q, *k, *v, *o, *gate, *up, *down;
  const float *q_bias, *k_bias, *v_bias, *o_bias, *gate_bias, *up_bias, *down_bias;
};

struct Model {
  int64_t layers, hidden, q_heads, kv_heads, dim, ffn, vocab;
  float eps, scale;
  const float *embed, *norm, *head, *head_bias;
  const Layer *layer;
};

struct Step {
  int64_t batch, past, keys_batch_stride, keys_head_stride;
  const int64_t *ids;
  const float *cos, *sin;  // (batch, dim)
  float *const *keys, *const *values;
  const uint8_t *mask;  // (batch, past + 1) or null
  float *scratch, *logits;
};

// Where one thread's own and everybody's intermediate results lie in the scratch memory.
struct Buffers {
  float *x, *q, *k, *v, *gate, *up, *parts, *own_x, *own_q, *scores;

  static int64_t shared(const Model &m, int64_t batch, int64_t threads) {
    const int64_t heads = m.q_heads + 2 * m.kv_heads;
    return batch * (m.hidden + heads * m.dim + 2 * m.ffn + threads * m.q_heads * (m.dim + 2));
  }
  static int64_t own(const Model &m, int64_t batch, int64_t total) {
    return batch * (std::max(m.hidden, m.q_heads * m.dim) + m.q_heads * m.dim) + total;
  }
  Buffers(const Model &m, const Step &s, const Thread &t) {
    float *at = s.scratch;
    const auto take = [&at](int64_t n) { float *from = at; at += n; return from; };
    const int64_t b = s.batch;
    x = take(b * m.hidden);
    q = take(b * m.q_heads * m.dim);
    k = take(b * m.kv_heads * m.dim);
    v = take(b * m.kv_heads * m.dim);
    gate = take(b * m.ffn);
    up = take(b * m.ffn);
    parts = take(b * t.count * m.q_heads * (m.dim + 2));
    at += t.index * own(m, b, s.past + 1);
    own_x = take(b * std::max(m.hidden, m.q_heads * m.dim));
    own_q = take(b * m.q_heads * m.dim);
    scores = take(s.past + 1);
  }
};

// Softmax over positions from .. to - 1 only, kept as sum, maximum and unscaled mix: a part.
void attend_part(const Model &m, const float *q, const float *keys, const float *values,
                 const uint8_t *mask, int64_t from, int64_t to, float *scores, float *part) {
  float most = -INFINITY, total = 0;
  int64_t t = from;
  for (; t + kLanes <= to; t += kLanes)
    dots<kLanes, 1>(keys + t * m.dim, q, m.dim, 0, reinterpret_cast<float(*)[kLanes]>(scores + t));
  for (; t < to; ++t) scores[t] = dot(keys + t * m.dim, q, m.dim);
  for (t = from; t < to; ++t)
    if (!mask || mask[t]) most = std::max(most, scores[t]);
  float *__restrict mix = part + 2;
  std::memset(mix, 0, m.dim * sizeof(float));
  for (t = from; t < to; ++t) {
    scores[t] = mask && !mask[t] ? 0.0f : std::exp(scores[t] - most);
    total += scores[t];
  }
  for (t = from; t + kRows <= to; t += kRows) {
    const float *p = scores + t, *v = values + t * m.dim;
    for (int64_t i = 0; i < m.dim; ++i)
      mix[i] += (p[0] * v[i] + p[1] * v[i + m.dim]) + (p[2] * v[i + 2 * m.dim] + p[3] * v[i + 3 * m.dim]);
  }
  for (; t < to; ++t)
    for (int64_t i = 0; i < m.dim; ++i) mix[i] += scores[t] * values[t * m.dim + i];
  part[0] = most;
  part[1] = total;
}

void merge(const Model &m, const float *parts, int64_t count, int64_t stride, float *out) {
  float most = -INFINITY, total = 0;
  for (int64_t c = 0; c < count; ++c) most = std::max(most, parts[c * stride]);
  std::memset(out, 0, m.dim * sizeof(float));
  for (int64_t c = 0; c < count; ++c) {
    const float *part = parts + c * stride;
    if (part[1] == 0) continue;
    const float by = std::exp(part[0] - most);
    total += by * part[1];
    for (int64_t i = 0; i < m.dim; ++i) out[i] += by * part[2 + i];
  }
  for (int64_t i = 0; i < m.dim; ++i) out[i] /= total;
}

// The thread that owns the last position also appends the new keys and values to the cache.
void attend(const Model &m, const Step &s, const Thread &t, const Buffers &at, int64_t layer) {
  const int64_t total = s.past + 1, width = m.dim + 2, group = m.q_heads / m.kv_heads;
  int64_t from, to;
  t.share(total, kRows, &from, &to);
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < m.q_heads; ++h) {
      const int64_t kv = h / group, row = (b * m.kv_heads + kv) * m.dim;
      const int64_t offset = b * s.keys_batch_stride + kv * s.keys_head_stride;
      float *keys = s.keys[layer] + offset, *values = s.values[layer] + offset;
      const float *cos = s.cos + b * m.dim, *sin = s.sin + b * m.dim;
      if (to == total && from < to && h % group == 0) {
        rotate(at.k + row, cos, sin, keys + s.past * m.dim, m.dim, 1.0f);
        std::memcpy(values + s.past * m.dim, at.v + row, m.dim * sizeof(float));
      }
      float *q = at.own_q + (b * m.q_heads + h) * m.dim;
      rotate(at.q + (b * m.q_heads + h) * m.dim, cos, sin, q, m.dim, m.scale);
      attend_part(m, q, keys, values, s.mask ? s.mask + b * total : nullptr, from, to, at.scores,
                  at.parts + ((b * m.q_heads + h) * t.count + t.index) * width);
    }
}

void norms(const Model &m, const Step &s, const Buffers &at, const float *weight) {
  for (int64_t b = 0; b < s.batch; ++b)
    rms_norm(at.x + b * m.hidden, weight, at.own_x + b * m.hidden, m.hidden, m.eps);
}

void silu_times_up(const Model &m, const Step &s, const Thread &t, const Buffers &at) {
  int64_t from, to;
  t.share(m.ffn, kRows, &from, &to);
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t i = b * m.ffn + from; i < b * m.ffn + to; ++i)
      at.gate[i] = at.gate[i] / (1.0f + std::exp(-at.gate[i])) * at.up[i];
}

void run_layer(const Model &m, const Step &s, const Thread &t, const Buffers &at, int64_t index) {
  const Layer &l = m.layer[index];
  const int64_t qn = m.q_heads * m.dim, kn = m.kv_heads * m.dim, width = m.dim + 2;
  norms(m, s, at, l.norm_in);
  product(t, l.q, l.q_bias, at.own_x, at.q, m.hidden, qn, qn, s.batch);
  product(t, l.k, l.k_bias, at.own_x, at.k, m.hidden, kn, kn, s.batch);
  product(t, l.v, l.v_bias, at.own_x, at.v, m.hidden, kn, kn, s.batch);
#pragma omp barrier
  attend(m, s, t, at, index);
#pragma omp barrier
  for (int64_t h = 0; h < s.batch * m.q_heads; ++h)
    merge(m, at.parts + h * t.count * width, t.count, width, at.own_x + h * m.dim);
  product(t, l.o, l.o_bias, at.own_x, at.x, qn, m.hidden, m.hidden, s.batch, true);
#pragma omp barrier
  norms(m, s, at, l.norm_post);
  product(t, l.gate, l.gate_bias, at.own_x, at.gate, m.hidden, m.ffn, m.ffn, s.batch);
  product(t, l.up, l.up_bias, at.own_x, at.up, m.hidden, m.ffn, m.ffn, s.batch);
  silu_times_up(m, s, t, at);
#pragma omp barrier
  product(t, l.down, l.down_bias, at.gate, at.x, m.ffn, m.hidden, m.hidden, s.batch, true);
#pragma omp barrier
}

}  // namespace

extern "C" int64_t scratch_floats(const Model *m, int64_t batch, int64_t total, int64_t threads) {
  return Buffers::shared(*m, batch, threads) + threads * Buffers::own(*m, batch, total);
}

extern "C" void decode_step(const Model *model, const Step *step, int64_t threads) {
  const Model &m = *model;
  const Step &s = *step;
#pragma omp parallel num_threads(static_cast<int>(threads))
  {
    const Thread t{omp_get_thread_num(), omp_get_num_threads()};
    const Buffers at(m, s, t);
#pragma omp single
    for (int64_t b = 0; b < s.batch; ++b)
      std::memcpy(at.x + b * m.hidden, m.embed + s.ids[b] * m.hidden, m.hidden * sizeof(float));
    for (int64_t layer = 0; layer < m.layers; ++layer) run_layer(m, s, t, at, layer);
    norms(m, s, at, m.norm);
    product(t, m.head, m.head_bias, at.own_x, s.logits, m.hidden, m.vocab, m.vocab, s.batch);
  }
}
