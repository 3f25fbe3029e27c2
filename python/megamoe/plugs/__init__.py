"""What switches the layer on in trainers. Each of these modules knows one trainer and is imported by its name:

    prime_rl, torchtitan, hugging_face, megatron

They refuse at set-up what the layer can't compute, with a sentence that names the option, and meet other ranks there
and nowhere else but in the op. `sharded` has what a training loop of one's own needs besides.
"""
