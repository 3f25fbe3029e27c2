# The kernel sources: each is compiled for the GPU and embedded in the library, and for the CPU into the simulated driver.
set(mm_kernels
  combine
  fill
  gather
)
