/* What ggml does slowly: products with q8_0 weights, attention, and what stands around them, as custom operations.
 *
 * Built for the processor that it is built on, like ggml itself; kernels.py loads it and knows what it may be asked.
 * Every function of the type ggml_custom_op_t computes its share, ith of nth, of the tensor dst from its sources. None
 * allocates memory or keeps any, and a row of a result is the same for any number of rows, and of threads.
 *
 * A VF has LANES floats, loaded and stored by memcpy, since nothing says that addresses are aligned.
 */
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))

/* struct ggml_tensor of ggml.h, as far as it is read. */
struct tensor {
    int type;
    void *buffer;
    int64_t ne[4];
    size_t nb[4];
    int op;
    int32_t op_params[16];
    int32_t flags;
    struct tensor *src[10];
    struct tensor *view_src;
    size_t view_offs;
    void *data;
};

#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)

EXPORT const int liveasr_lanes = 0; /* nothing for this processor */

#else

#include <immintrin.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define LANES 16
#else
#define LANES 8
#endif

EXPORT const int liveasr_lanes = LANES;

typedef float VF __attribute__((vector_size(LANES * 4)));
typedef int32_t VI __attribute__((vector_size(LANES * 4)));
typedef int8_t VB __attribute__((vector_size(LANES)));

enum {
    WIDE = 2 * LANES, /* columns of a tile */
    ROWS = 6,         /* of a tile: its sums, a row's value and two vectors of the other factor fill the registers */
    INT_ROWS = LANES == 16 ? 6 : 2, /* of a tile of whole numbers, which needs sums of both kinds */
    BLOCK = 32,                     /* values that share a scale */
    GROUPS = BLOCK / 4,
    Q8_0_BYTES = 2 + BLOCK,
    VALUES_BYTES = LANES * BLOCK, /* of a block of LANES columns, which are a panel: GROUPS times 4 values of each */
    SCALES_BYTES = LANES * 2,
    MAX_NORMED = 4096,
    MAX_TAPS = 64,
};

EXPORT const int liveasr_limits[] = {MAX_NORMED, MAX_TAPS};

/* Whether this processor has what the compiler was free to use. It is called first, and nothing in it needs any of that. */
EXPORT int liveasr_runs_here(void) {
    __builtin_cpu_init();
    int has_all = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
#if LANES == 16
    has_all = has_all && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
#ifdef __AVX512VNNI__
    has_all = has_all && __builtin_cpu_supports("avx512vnni");
#endif
#ifdef __AVX512VBMI__
    has_all = has_all && __builtin_cpu_supports("avx512vbmi");
#endif
#ifdef __AVX512VBMI2__
    has_all = has_all && __builtin_cpu_supports("avx512vbmi2");
#endif
#ifdef __FMA4__ /* AMD's before Zen */
    has_all = has_all && __builtin_cpu_supports("fma4") && __builtin_cpu_supports("xop");
#endif
    return has_all;
}

INLINE VF load(const float *from) {
    VF v;
    memcpy(&v, from, sizeof v);
    return v;
}

INLINE void store(float *to, VF v) { memcpy(to, &v, sizeof v); }

INLINE VF all(float x) { return x - (VF){0}; }

INLINE VF choose(VI where, VF a, VF b) { return (VF)(((VI)a & where) | ((VI)b & ~where)); }

INLINE VF larger(VF a, VF b) {
#if LANES == 16
    return (VF)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return (VF)_mm256_max_ps((__m256)a, (__m256)b);
#endif
}

INLINE VI larger_whole(VI a, VI b) {
#if LANES == 16
    return (VI)_mm512_max_epi32((__m512i)a, (__m512i)b);
#else
    return (VI)_mm256_max_epi32((__m256i)a, (__m256i)b);
#endif
}

INLINE float sum(VF v) {
    float total = 0;
    for (int i = 0; i < LANES; i++) total += v[i];
    return total;
}

INLINE float largest(VF v) {
    float most = v[0];
    for (int i = 1; i < LANES; i++) most = v[i] > most ? v[i] : most;
    return most;
}

INLINE float *row_of(const struct tensor *x, int64_t row) { return (float *)((char *)x->data + row * x->nb[1]); }

INLINE int64_t share(int64_t count, int ith, int nth) { return count * ith / nth; }

/* To the nearest whole number, of values up to 2^22: the sum has it in its lowest bits. */
INLINE VI rounded(VF x) {
    const VF magic = all(12582912.0f); /* 1.5 * 2^23 */
    return (VI)(x + magic) - (VI)magic;
}

/* e^x for x <= 0, to 3e-7 of it; 0 below -87. It is 2^n e^r with |r| <= ln(2) / 2, and eight terms of the series of e^r. */
INLINE VF exponential(VF x) {
    const VF clamped = larger(x, all(-87.0f));
    const VI n = rounded(clamped * 1.44269504f);
    const VF whole = __builtin_convertvector(n, VF);
    const VF r = (clamped - whole * 0.693359375f) + whole * 2.12194440e-4f; /* ln(2) in two parts */
    VF y = all(1.0f / 5040);
    y = y * r + 1.0f / 720;
    y = y * r + 1.0f / 120;
    y = y * r + 1.0f / 24;
    y = y * r + 1.0f / 6;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    return choose(x < -87.0f, (VF){0}, (VF)((VI)y + (n << 23)));
}

/* ---- Layer norm, and the memory of SAN-M ---- */

struct norm {
    const float *weight, *bias;
    float eps;
};

INLINE void normalise(const struct norm *norm, const float *in, float *out, int64_t count) {
    VF total = {0}, squares = {0};
    for (int64_t i = 0; i < count; i += LANES) total += load(in + i);
    const float mean = sum(total) / (float)count;
    for (int64_t i = 0; i < count; i += LANES) {
        const VF centred = load(in + i) - mean;
        squares += centred * centred;
    }
    const float inverse = 1.0f / sqrtf(sum(squares) / (float)count + norm->eps);
    for (int64_t i = 0; i < count; i += LANES)
        store(out + i, (load(in + i) - mean) * inverse * load(norm->weight + i) + load(norm->bias + i));
}

/* dst, src[0]: (T, D) f32, D a multiple of LANES; userdata: struct norm. */
EXPORT void liveasr_norm(struct tensor *dst, int ith, int nth, void *userdata) {
    const int64_t rows = dst->ne[1];
    for (int64_t r = share(rows, ith, nth); r < share(rows, ith + 1, nth); r++)
        normalise(userdata, row_of(dst->src[0], r), row_of(dst, r), dst->ne[0]);
}

/* dst: (T, D) f32; src[0]: values (T, D) f32; src[1]: taps (D, K) f32; D a multiple of LANES, K at most MAX_TAPS. The
 * depthwise convolution over time, centred, with zeros around, plus the values themselves. */
EXPORT void liveasr_memory(struct tensor *dst, int ith, int nth, void *userdata) {
    (void)userdata;
    const struct tensor *values = dst->src[0];
    const int64_t width = dst->ne[0], rows = dst->ne[1], kernel = dst->src[1]->ne[0], before = (kernel - 1) / 2;
    for (int64_t i = 0; i < width; i += LANES) {
        VF taps[MAX_TAPS];
        for (int64_t tap = 0; tap < kernel; tap++)
            for (int lane = 0; lane < LANES; lane++) taps[tap][lane] = row_of(dst->src[1], i + lane)[tap];
        for (int64_t r = share(rows, ith, nth); r < share(rows, ith + 1, nth); r++) {
            const int64_t first = r < before ? before - r : 0;
            const int64_t last = rows - r + before < kernel ? rows - r + before : kernel;
            VF total = {0};
            for (int64_t tap = first; tap < last; tap++)
                total += load(row_of(values, r + tap - before) + i) * taps[tap];
            store(row_of(dst, r) + i, total + load(row_of(values, r) + i));
        }
    }
}

/* ---- Products with q8_0 weights ---- */

#if LANES == 16 && defined(__AVX512VNNI__)
#define IS_UNSIGNED 1 /* the instruction wants one factor without a sign: weights are stored as w + 128 */
#else
#define IS_UNSIGNED 0
#endif

INLINE int64_t panels_of(int64_t columns) { return (columns + WIDE - 1) / WIDE * 2; }

EXPORT int64_t liveasr_packed_bytes(int64_t columns, int64_t inner) {
    return panels_of(columns) * (inner / BLOCK) * (VALUES_BYTES + SCALES_BYTES);
}

/* Rows of q8_0, one for each column of the product, as panels: the values of all, then the f16 scales of all. Columns that
 * only fill a tile are zeros. */
EXPORT void liveasr_pack(const uint8_t *q8_0, int64_t columns, int64_t inner, uint8_t *packed) {
    static const uint8_t zeros[Q8_0_BYTES];
    const int64_t blocks = inner / BLOCK, panels = panels_of(columns);
    uint8_t *scales = packed + panels * blocks * VALUES_BYTES;
    for (int64_t panel = 0; panel < panels; panel++)
        for (int64_t block = 0; block < blocks; block++, packed += VALUES_BYTES, scales += SCALES_BYTES)
            for (int lane = 0; lane < LANES; lane++) {
                const int64_t column = panel * LANES + lane;
                const uint8_t *in = column < columns ? q8_0 + (column * blocks + block) * Q8_0_BYTES : zeros;
                memcpy(scales + 2 * lane, in, 2);
                for (int group = 0; group < GROUPS; group++) {
                    uint32_t four;
                    memcpy(&four, in + 2 + 4 * group, 4);
                    four ^= IS_UNSIGNED ? 0x80808080u : 0;
                    memcpy(packed + 4 * (LANES * group + lane), &four, 4);
                }
            }
}

/* A quantised row of K values: K int8, K / 32 scales (float), K / 32 offsets (int32), which take back the 128s. */
INLINE float *scales_of(const int8_t *row, int64_t inner) { return (float *)(row + inner); }
INLINE int32_t *offsets_of(const int8_t *row, int64_t inner) { return (int32_t *)(row + inner) + inner / BLOCK; }

/* dst: (T, K * 5 / 4) int8; src[0]: (T, K) f32; userdata: struct norm, or null for values as they are. A block with a value
 * that is no number, or infinite, has a scale that is none; one of values below FLT_MIN * 127 has zeros. */
EXPORT void liveasr_quantize(struct tensor *dst, int ith, int nth, void *userdata) {
    const int64_t inner = dst->src[0]->ne[0], rows = dst->ne[1];
    float normed[MAX_NORMED];
    for (int64_t r = share(rows, ith, nth); r < share(rows, ith + 1, nth); r++) {
        const float *in = row_of(dst->src[0], r);
        int8_t *out = (int8_t *)row_of(dst, r);
        float *scales = scales_of(out, inner);
        int32_t *offsets = offsets_of(out, inner);
        if (userdata) {
            normalise(userdata, in, normed, inner);
            in = normed;
        }
        for (int64_t block = 0; block < inner / BLOCK; block++, in += BLOCK, out += BLOCK) {
            VI most = {0}; /* without the sign, the bits of floats rise with them, and what is no number is above all */
            for (int i = 0; i < BLOCK; i += LANES) most = larger_whole(most, (VI)load(in + i) & INT32_MAX);
            int32_t bits = most[0];
            for (int i = 1; i < LANES; i++) bits = most[i] > bits ? most[i] : bits;
            float top;
            memcpy(&top, &bits, sizeof top);
            const int is_finite = top <= FLT_MAX;
            const float per_step = is_finite && top >= 127 * FLT_MIN ? 127.0f / top : 0;
            VI total = {0};
            for (int i = 0; i < BLOCK; i += LANES) {
                const VI whole = rounded(load(in + i) * per_step) & -is_finite;
                const VB bytes = __builtin_convertvector(whole, VB);
                memcpy(out + i, &bytes, sizeof bytes);
                total += whole;
            }
            int32_t values = 0;
            for (int i = 0; i < LANES; i++) values += total[i];
            scales[block] = is_finite ? top / 127.0f : NAN;
            offsets[block] = IS_UNSIGNED ? -128 * values : 0;
        }
    }
}

#if LANES == 16

INLINE VF from_f16(const uint8_t *scales) { return (VF)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)scales)); }

/* Adds to each lane the products of its four weights with four values. */
INLINE VI dot(VI sums, const uint8_t *weights, int32_t four) {
    const __m512i w = _mm512_loadu_si512(weights), x = _mm512_set1_epi32(four);
#if IS_UNSIGNED
    return (VI)_mm512_dpbusd_epi32((__m512i)sums, w, x);
#else /* |w| times x with the sign of w; two such products fit in 16 bits */
    const __m512i signed_x = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(w), signed_x);
    return sums + (VI)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#endif
}

#else

INLINE VF from_f16(const uint8_t *scales) { return (VF)_mm256_cvtph_ps(_mm_loadu_si128((const void *)scales)); }

INLINE VI dot(VI sums, const uint8_t *weights, int32_t four) {
    const __m256i w = _mm256_loadu_si256((const void *)weights), x = _mm256_set1_epi32(four);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return sums + (VI)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

#endif

/* Two panels times some quantised rows. `rows` is a constant where this is inlined. */
INLINE void int_tile(const uint8_t *values, const uint8_t *scales, int64_t inner, const int8_t *x, size_t row_bytes,
                     int rows, VF out[INT_ROWS][2]) {
    const int64_t blocks = inner / BLOCK;
    for (int r = 0; r < rows; r++) out[r][0] = out[r][1] = (VF){0};
    for (int64_t block = 0; block < blocks; block++, values += VALUES_BYTES, scales += SCALES_BYTES) {
        VI sums[INT_ROWS][2];
        for (int r = 0; r < rows; r++)
            sums[r][0] = sums[r][1] = offsets_of(x + r * row_bytes, inner)[block] - (VI){0};
        for (int group = 0; group < GROUPS; group++) {
            const uint8_t *first = values + 4 * LANES * group, *second = first + blocks * VALUES_BYTES;
            for (int r = 0; r < rows; r++) {
                int32_t four;
                memcpy(&four, x + r * row_bytes + block * BLOCK + group * 4, 4);
                sums[r][0] = dot(sums[r][0], first, four);
                sums[r][1] = dot(sums[r][1], second, four);
            }
        }
        const VF steps[2] = {from_f16(scales), from_f16(scales + blocks * SCALES_BYTES)};
        for (int r = 0; r < rows; r++)
            for (int half = 0; half < 2; half++)
                out[r][half] += __builtin_convertvector(sums[r][half], VF) * steps[half] *
                                scales_of(x + r * row_bytes, inner)[block];
    }
}

struct linear {
    const uint8_t *packed;
    const float *bias; /* or null */
    int64_t inner;
    int relu;
    int addends;
};

/* dst: (T, columns) f32; src[0]: quantised rows; src[1], ...: (T, columns) f32 that are added at the end. */
EXPORT void liveasr_linear(struct tensor *dst, int ith, int nth, void *userdata) {
    const struct linear *p = userdata;
    const struct tensor *x = dst->src[0];
    const int64_t columns = dst->ne[0], rows = dst->ne[1], tiles = panels_of(columns) / 2, blocks = p->inner / BLOCK;
    for (int64_t t = share(tiles, ith, nth); t < share(tiles, ith + 1, nth); t++) {
        const uint8_t *values = p->packed + 2 * t * blocks * VALUES_BYTES;
        const uint8_t *scales = p->packed + 2 * (tiles * VALUES_BYTES + t * SCALES_BYTES) * blocks;
        const int64_t from = t * WIDE, count = columns - from < WIDE ? columns - from : WIDE;
        float bias[WIDE] = {0};
        if (p->bias) memcpy(bias, p->bias + from, count * sizeof *bias);
        for (int64_t r = 0; r < rows; r += INT_ROWS) {
            VF out[INT_ROWS][2];
            const int8_t *in = (const int8_t *)row_of(x, r);
            const int here = rows - r < INT_ROWS ? (int)(rows - r) : INT_ROWS;
            switch (here) {
#if LANES == 16
            case 6: int_tile(values, scales, p->inner, in, x->nb[1], 6, out); break;
            case 5: int_tile(values, scales, p->inner, in, x->nb[1], 5, out); break;
            case 4: int_tile(values, scales, p->inner, in, x->nb[1], 4, out); break;
            case 3: int_tile(values, scales, p->inner, in, x->nb[1], 3, out); break;
#endif
            case 2: int_tile(values, scales, p->inner, in, x->nb[1], 2, out); break;
            default: int_tile(values, scales, p->inner, in, x->nb[1], 1, out);
            }
            for (int i = 0; i < here; i++) {
                float line[WIDE];
                for (int half = 0; half < 2; half++) {
                    const VF y = out[i][half] + load(bias + half * LANES);
                    store(line + half * LANES, p->relu ? larger(y, (VF){0}) : y);
                }
                for (int a = 1; a <= p->addends; a++)
                    for (int64_t c = 0; c < count; c++) line[c] += row_of(dst->src[a], r + i)[from + c];
                memcpy(row_of(dst, r + i) + from, line, count * sizeof *line);
            }
        }
    }
}

/* ---- Attention ---- */

/* Rows (rows, count) times a matrix whose WIDE columns lie side by side, `stride` floats from row to row. */
INLINE void float_tile(const float *x, size_t x_stride, const float *matrix, size_t stride, int64_t count, int rows,
                       VF out[ROWS][2]) {
    for (int r = 0; r < rows; r++) out[r][0] = out[r][1] = (VF){0};
    for (int64_t i = 0; i < count; i++, matrix += stride) {
        const VF a = load(matrix), b = load(matrix + LANES);
        for (int r = 0; r < rows; r++) {
            out[r][0] += a * x[r * x_stride + i];
            out[r][1] += b * x[r * x_stride + i];
        }
    }
}

INLINE void any_float_tile(const float *x, size_t x_stride, const float *matrix, size_t stride, int64_t count, int rows,
                           VF out[ROWS][2]) {
    switch (rows) {
    case 6: float_tile(x, x_stride, matrix, stride, count, 6, out); break;
    case 5: float_tile(x, x_stride, matrix, stride, count, 5, out); break;
    case 4: float_tile(x, x_stride, matrix, stride, count, 4, out); break;
    case 3: float_tile(x, x_stride, matrix, stride, count, 3, out); break;
    case 2: float_tile(x, x_stride, matrix, stride, count, 2, out); break;
    default: float_tile(x, x_stride, matrix, stride, count, 1, out);
    }
}

INLINE int64_t padded(int64_t keys) { return (keys + WIDE - 1) / WIDE * WIDE; }

/* Floats that one thread needs: keys and values of one head, and the weights of a tile of rows. */
EXPORT int64_t liveasr_attention_floats(int64_t keys, int64_t width) { return padded(keys) * (2 * width + ROWS); }

/* Of one head: keys (Tk, d) as panels of WIDE keys (d, WIDE), scaled, and values (Tk, d) one behind the other. */
static void take_head(const struct tensor *k, const struct tensor *v, int64_t at, int64_t width, float *keys,
                      float *values) {
    const int64_t count = k->ne[1];
    const float scale = 1.0f / sqrtf((float)width);
    for (int64_t j = 0; j < padded(count); j++) {
        float *key = keys + j / WIDE * WIDE * width + j % WIDE;
        for (int64_t i = 0; i < width; i++) key[i * WIDE] = j < count ? row_of(k, j)[at + i] * scale : 0;
    }
    for (int64_t j = 0; j < count; j++) memcpy(values + j * width, row_of(v, j) + at, width * sizeof *values);
}

/* Turns scores (Tk of them, room for as many as padded) into e^(score - highest); returns one over their sum. */
INLINE float soften(float *scores, int64_t keys) {
    for (int64_t j = keys; j < padded(keys); j++) scores[j] = -INFINITY;
    VF most = all(-INFINITY), total = {0};
    for (int64_t j = 0; j < keys; j += LANES) most = larger(most, load(scores + j));
    const float highest = largest(most);
    for (int64_t j = 0; j < keys; j += LANES) {
        const VF weight = exponential(load(scores + j) - highest);
        store(scores + j, weight);
        total += weight;
    }
    return 1.0f / sum(total);
}

/* dst: (Tq, D) f32; src: q (Tq, D), k and v (Tk, D) f32, and scratch memory for nth threads; D / heads a multiple of WIDE;
 * userdata: the number of heads. softmax(q k' / sqrt(d)) v for each head. */
EXPORT void liveasr_attention(struct tensor *dst, int ith, int nth, void *userdata) {
    const struct tensor *q = dst->src[0], *k = dst->src[1], *v = dst->src[2];
    const int64_t heads = *(const int64_t *)userdata, width = dst->ne[0] / heads, rows = dst->ne[1], count = k->ne[1];
    float *keys = (float *)dst->src[3]->data + ith * liveasr_attention_floats(count, width);
    float *values = keys + padded(count) * width, *scores = values + padded(count) * width;
    const int64_t end = share(heads * rows, ith + 1, nth);
    for (int64_t unit = share(heads * rows, ith, nth); unit < end;) {
        const int64_t head = unit / rows, at = head * width, stop = (head + 1) * rows < end ? (head + 1) * rows : end;
        take_head(k, v, at, width, keys, values);
        for (int here; unit < stop; unit += here) {
            const int64_t r = unit - head * rows;
            here = stop - unit < ROWS ? (int)(stop - unit) : ROWS;
            VF out[ROWS][2];
            float inverse[ROWS];
            for (int64_t j = 0; j < count; j += WIDE) {
                any_float_tile(row_of(q, r) + at, q->nb[1] / sizeof(float), keys + j * width, WIDE, width, here, out);
                for (int i = 0; i < here; i++) {
                    store(scores + i * padded(count) + j, out[i][0]);
                    store(scores + i * padded(count) + j + LANES, out[i][1]);
                }
            }
            for (int i = 0; i < here; i++) inverse[i] = soften(scores + i * padded(count), count);
            for (int64_t c = 0; c < width; c += WIDE) {
                any_float_tile(scores, padded(count), values + c, width, count, here, out);
                for (int i = 0; i < here; i++) {
                    store(row_of(dst, r + i) + at + c, out[i][0] * inverse[i]);
                    store(row_of(dst, r + i) + at + c + LANES, out[i][1] * inverse[i]);
                }
            }
        }
    }
}

/* What kernels.py and the bindings of ggml have to agree with. */
EXPORT const int64_t liveasr_layout[] = {
    offsetof(struct tensor, ne),
    offsetof(struct tensor, nb),
    offsetof(struct tensor, src),
    offsetof(struct tensor, data),
    offsetof(struct norm, weight),
    offsetof(struct norm, bias),
    offsetof(struct norm, eps),
    offsetof(struct linear, packed),
    offsetof(struct linear, bias),
    offsetof(struct linear, inner),
    offsetof(struct linear, relu),
    offsetof(struct linear, addends),
};

#endif
