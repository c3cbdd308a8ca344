// Products of a few inputs with a weight matrix that is read in place, once.
//
// Sums run in 16 lanes, so a reduction of n terms rounds like one of n / 16.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

constexpr int kLanes = 16;
constexpr int kRows = 4;   // weight rows in flight: enough loads to keep memory busy
constexpr int kBatch = 4;  // inputs that share one pass over those rows
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));

// Add the upper half of a vector to its lower half.
template <typename Half, typename Whole>
Half fold(const Whole &a) {
  Half low, high;
  std::memcpy(&low, &a, sizeof low);
  std::memcpy(&high, reinterpret_cast<const char *>(&a) + sizeof low, sizeof high);
  return low + high;
}

float sum(const Lanes &a) {
  typedef float Eight __attribute__((vector_size(32)));
  typedef float Four __attribute__((vector_size(16)));
  const Four four = fold<Four>(fold<Eight>(a));
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// Lanes of a and b folded by S and woven: a's where the lane's bit S is 0, b's where it is 1.
template <int S>
Lanes weave(const Lanes &a, const Lanes &b) {
  typedef int Mask __attribute__((vector_size(kLanes * sizeof(int))));
  Mask near = {}, far = {};
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    near[i] = i & S ? kLanes + i - S : i;
    far[i] = i & S ? kLanes + i : i + S;
  }
  return __builtin_shuffle(a, b, near) + __builtin_shuffle(a, b, far);
}

// The sums of 16 vectors, one a lane: a quarter of the work of 16 single sums.
Lanes sums(const Lanes *a) {
  Lanes c[8];
  for (int i = 0; i < 8; ++i) c[i] = weave<1>(a[2 * i], a[2 * i + 1]);
  for (int i = 0; i < 4; ++i) c[i] = weave<2>(c[2 * i], c[2 * i + 1]);
  for (int i = 0; i < 2; ++i) c[i] = weave<4>(c[2 * i], c[2 * i + 1]);
  return weave<8>(c[0], c[1]);
}

// out[b][r] = dot(x[b], w[r]) for R rows and B inputs; both are n long.
template <int R, int B>
void dots(const float *w, const float *x, int64_t n, int64_t x_stride, float out[B][R]) {
  Lanes acc[B][R] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Lanes row = *reinterpret_cast<const Lanes *>(w + r * n + i);
#pragma GCC unroll 4
      for (int b = 0; b < B; ++b)
        acc[b][r] += row * *reinterpret_cast<const Lanes *>(x + b * x_stride + i);
    }
  if constexpr (R * B == kLanes) {
    const Lanes all = sums(&acc[0][0]);
    std::memcpy(out, &all, sizeof all);
  } else {
    for (int b = 0; b < B; ++b)
      for (int r = 0; r < R; ++r) out[b][r] = sum(acc[b][r]);
  }
  for (; i < n; ++i)
    for (int b = 0; b < B; ++b)
      for (int r = 0; r < R; ++r) out[b][r] += w[r * n + i] * x[b * x_stride + i];
}

// y[b][r] (+)= w[r] . x[b] + bias[r], for rows first .. last - 1.
template <int R, int B>
void block(const float *w, const float *bias, const float *x, float *y, int64_t n, int64_t row,
           int64_t y_stride, bool add) {
  float out[B][R];
  dots<R, B>(w + row * n, x, n, n, out);
  for (int b = 0; b < B; ++b)
    for (int r = 0; r < R; ++r) {
      float &to = y[b * y_stride + row + r];
      to = out[b][r] + (bias ? bias[row + r] : 0.0f) + (add ? to : 0.0f);
    }
}

template <int R>
void rows(const float *w, const float *bias, const float *x, float *y, int64_t n, int64_t row,
          int64_t y_stride, int64_t batch, bool add) {
  int64_t b = 0;
  for (; b + kBatch <= batch; b += kBatch)
    block<R, kBatch>(w, bias, x + b * n, y + b * y_stride, n, row, y_stride, add);
  for (; b + 2 <= batch; b += 2)
    block<R, 2>(w, bias, x + b * n, y + b * y_stride, n, row, y_stride, add);
  for (; b < batch; ++b)
    block<R, 1>(w, bias, x + b * n, y + b * y_stride, n, row, y_stride, add);
}

struct Thread {
  int64_t index, count;
  // The share of `total` items, in whole groups of `group`, that falls to this thread.
  void share(int64_t total, int64_t group, int64_t *from, int64_t *to) const {
    const int64_t groups = (total + group - 1) / group;
    *from = std::min(total, groups * index / count * group);
    *to = std::min(total, groups * (index + 1) / count * group);
  }
};

void product(const Thread &t, const float *w, const float *bias, const float *x, float *y,
             int64_t in, int64_t out, int64_t y_stride, int64_t batch, bool add = false) {
  int64_t row, last;
  t.share(out, kRows, &row, &last);
  for (; row + kRows <= last; row += kRows) rows<kRows>(w, bias, x, y, in, row, y_stride, batch, add);
  for (; row < last; ++row) rows<1>(w, bias, x, y, in, row, y_stride, batch, add);
}

float dot(const float *a, const float *b, int64_t n) {
  float out[1][1];
  dots<1, 1>(a, b, n, n, out);
  return out[0][0];
}

void rms_norm(const float *x, const float *weight, float *y, int64_t n, float eps) {
  const float scale = 1.0f / std::sqrt(dot(x, x, n) / n + eps);
  for (int64_t i = 0; i < n; ++i) y[i] = weight[i] * (x[i] * scale);
}

// The two halves swap; the sign of the swap lies in sin.
void rotate(const float *x, const float *cos, const float *sin, float *y, int64_t dim, float by) {
  const int64_t half = dim / 2;
  for (int64_t i = 0; i < dim; ++i)
    y[i] = (x[i] * cos[i] + x[(i + half) % dim] * sin[i]) * by;
}

}  // namespace
