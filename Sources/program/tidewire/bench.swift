import Console

/// Command `tidewire bench`: starts the separate program `tidewire-bench`. So the hub's program does not contain the
/// load generator.
struct BenchCommand: Command {
    let name = "bench"
    let summary = "Measure how fast the hub is on this machine, beside baselines."
    let discussion = """
        The program tidewire-bench does this. It receives every argument after `tidewire bench`.
        """
    let otherProgram: String? = "tidewire-bench"
}
