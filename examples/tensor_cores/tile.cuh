// One tile of C = A * B^T in bf16 on tensor cores, sums in single precision: A is M x K, B is N x K, C is M x N, row-major,
// any sizes. mma.sync and cp.async, so sm_80 and later. It knows nothing of schedules.
#pragma once

using bf16 = unsigned short;  // bits that are only moved here

constexpr int BM = 128, BN = 256, BK = 64;  // of a tile; BK values are a row of 128 bytes in shared memory
constexpr int WM = 64, WN = 64;             // of a warp's part of it
constexpr int WARPS_N = BN / WN, THREADS = BM / WM * WARPS_N * 32;
constexpr int A_BYTES = BM * BK * 2, STAGE_BYTES = A_BYTES + BN * BK * 2;

// -- instructions ----------------------------------------------------------------------------------------------------

// 16 bytes from global to shared memory, both aligned to 16, where `wanted`; zeros, and nothing read, unless `inside`.
__device__ __forceinline__ void copy_async(bool wanted, unsigned to, const bf16* from, bool inside) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %0, 0;\n\t"
      "@p cp.async.cg.shared.global.L2::128B [%1], [%2], 16, %3;\n\t}"
      ::"r"((unsigned)wanted), "r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}

// The copies since the last one are a group; a thread waits for its groups but the last N.
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

__device__ __forceinline__ void store_shared(unsigned to, const unsigned (&v)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
               : "memory");
}

// Four matrices of 8 x 8; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(unsigned (&r)[4], unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

// c += a * b: 16 x 8 of C from 16 values of K.
__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ unsigned pack(float low, float high) {
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// -- global to shared memory -----------------------------------------------------------------------------------------

// Where the values 8 * chunk to below 8 * chunk + 8 of a row stand: chunks are permuted within a row of 8, so that
// neither the copies nor `load_matrices` meet bank conflicts.
__device__ __forceinline__ unsigned place(int row, int chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }

// What a tile needs of A or of B: ROWS rows of K values from `first` on. A thread copies a chunk of every 32nd row.
template <int ROWS>
struct Rows {
  const bf16* from;  // this thread's first row, or the last one there is
  int K, column;     // values of a row; where its chunk stands among the BK values of a step
  unsigned at;       // and in shared memory
  int left, last;    // how many of the matrix's rows there are from its first row on; the last of them
  bool aligned;      // whether all rows begin at 16 bytes, as `copy_async` needs them

  __device__ __forceinline__ Rows(const bf16* values, int rows, int K_, int first, unsigned thread) : K(K_) {
    const int row = first + thread / 8;
    left = rows - row;
    last = left > 0 ? left - 1 : 0;
    column = thread % 8 * 8;
    at = place(thread / 8, thread % 8);
    from = values + (size_t)(left > 0 ? row : rows - 1) * K;
    aligned = K % 8 == 0 && (size_t)values % 16 == 0;
  }

  // A quarter of the BK values of each row from k on, into shared memory, where `wanted`: zeros for what is outside.
  // Without branches, so that it mixes with the products around it; no address is outside the matrix.
  __device__ __forceinline__ void copy(bool wanted, unsigned to, int k, int quarter) const {
    const bool inside = k + column < K;
    const bf16* chunk = from + (inside ? k + column : 0);
#pragma unroll
    for (int r = quarter * (ROWS / 4); r < (quarter + 1) * (ROWS / 4); r += 32) {
      copy_async(wanted && aligned, to + at + r * 128, chunk + (long long)(r < last ? r : last) * K, inside && r < left);
    }
  }

  // All of them, value by value.
  __device__ __forceinline__ void copy_unaligned(unsigned to, int k) const {
#pragma unroll 1
    for (int r = 0; r < ROWS; r += 32) {
      unsigned v[4] = {};
      for (int j = 0; j < 8; ++j) {
        if (r < left && k + column + j < K) v[j / 2] |= (unsigned)from[(size_t)r * K + k + column + j] << j % 2 * 16;
      }
      store_shared(to + at + r * 128, v);
    }
  }
};

// -- the tile --------------------------------------------------------------------------------------------------------

// Tile (m, n), by all THREADS threads of a block together. STAGES steps of K are in `shared` at a time: STAGES *
// STAGE_BYTES bytes, aligned to 128.
template <int STAGES>
__device__ __forceinline__ void compute_tile(
    int m, int n, const bf16* A, const bf16* B, bf16* C, int M, int N, int K, unsigned char* shared) {
  const unsigned stages = (unsigned)__cvta_generic_to_shared(shared);
  const unsigned thread = threadIdx.x;
  const int lane = thread % 32, wm = thread / 32 / WARPS_N * WM, wn = thread / 32 % WARPS_N * WN;
  const int m0 = m * BM, n0 = n * BN, steps = K / BK + (K % BK != 0);
  const bool pairs = N % 2 == 0 && (size_t)C % 4 == 0;  // whether two columns can be stored at once
  const Rows<BM> a_rows(A, M, K, m0, thread);
  const Rows<BN> b_rows(B, N, K, n0, thread);
  float sums[WM / 16][WN / 8][4] = {};

  // A step's copies are made in four quarters, among the products of an earlier step.
  const auto fetch = [&](int step, int quarter) {
    const unsigned to = stages + step % STAGES * STAGE_BYTES;
    a_rows.copy(step < steps, to, step * BK, quarter);
    b_rows.copy(step < steps, to + A_BYTES, step * BK, quarter);
    if (quarter == 3) commit();  // an empty group too, so that there is one for each step
  };
  const auto fetch_unaligned = [&](int step) {
    const unsigned to = stages + step % STAGES * STAGE_BYTES;
    if (step >= steps) return;
    if (!a_rows.aligned) a_rows.copy_unaligned(to, step * BK);
    if (!b_rows.aligned) b_rows.copy_unaligned(to + A_BYTES, step * BK);
  };

  // Operands of a quarter are loaded while the products of the one before are computed: those of B where the last
  // product with their forerunners has been, those of A, which all products need, beside them.
  unsigned a[2][WM / 16][4], b[WN / 16][4];
  const auto load_a = [&](int step, int quarter) {
    const unsigned tile = stages + step % STAGES * STAGE_BYTES;
#pragma unroll
    for (int i = 0; i < WM / 16; ++i)
      load_matrices(a[quarter % 2][i], tile + place(wm + i * 16 + lane % 16, quarter * 2 + lane / 16));
  };
  const auto load_b = [&](int step, int quarter, int j) {
    const unsigned tile = stages + step % STAGES * STAGE_BYTES + A_BYTES;
    load_matrices(b[j], tile + place(wn + j * 16 + lane / 16 * 8 + lane % 8, quarter * 2 + lane / 8 % 2));
  };

  for (int step = 0; step < STAGES - 1; ++step) {
    fetch_unaligned(step);
    for (int quarter = 0; quarter < 4; ++quarter) fetch(step, quarter);
  }
  wait<STAGES - 2>();
  __syncthreads();
  if (steps > 0) {
    load_a(0, 0);
#pragma unroll
    for (int j = 0; j < WN / 16; ++j) load_b(0, 0, j);
  }
  for (int step = 0; step < steps; ++step) {
    fetch_unaligned(step + STAGES - 1);
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      fetch(step + STAGES - 1, quarter);
      if (quarter == 3) {
        wait<STAGES - 2>();
        __syncthreads();  // the next step's copies are there, and everyone has read what the ones after it overwrite
      }
      // past the last step this reads what nothing was copied to, and what nobody uses
      const int next = quarter == 3 ? step + 1 : step, after = (quarter + 1) % 4;
      load_a(next, after);
#pragma unroll
      for (int j = 0; j < WN / 16; ++j) {
#pragma unroll
        for (int i = 0; i < WM / 16; ++i)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            multiply(sums[i][j * 2 + half], a[quarter % 2][i], b[j][half * 2], b[j][half * 2 + 1]);
        load_b(next, after, j);
      }
    }
  }
  wait<0>();
  __syncthreads();  // the next tile's copies go where this one's were read

#pragma unroll
  for (int i = 0; i < WM / 16; ++i) {
#pragma unroll
    for (int j = 0; j < WN / 8; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = m0 + wm + i * 16 + half * 8 + lane / 4, column = n0 + wn + j * 8 + lane % 4 * 2;
        if (row >= M || column >= N) continue;
        const unsigned both = pack(sums[i][j][half * 2], sums[i][j][half * 2 + 1]);
        bf16* to = C + (size_t)row * N + column;
        if (pairs) {
          *(unsigned*)to = both;
        } else {
          to[0] = (bf16)both;
          if (column + 1 < N) to[1] = (bf16)(both >> 16);
        }
      }
    }
  }
}
