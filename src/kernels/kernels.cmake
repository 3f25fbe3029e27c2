# The kernel sources: each is compiled for the GPU and embedded in the library, and for the CPU into the simulated driver.
set(mm_kernels
  combine
  dgate_up
  down
  dx
  fill
  gate_up
  gather
  plan_count
  plan_ids
  plan_place
  wgrad_bf16
  wgrad_f32
)
