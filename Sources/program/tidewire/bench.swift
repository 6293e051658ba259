import Console

/// `tidewire bench`, which is a separate program, so that the hub does not contain the load generator.
struct BenchCommand: Command {
    let name = "bench"
    let summary = "Measure how fast the hub is on this machine, beside baselines."
    let discussion = """
        The program tidewire-bench does this. It receives every argument after `tidewire bench`.
        """
    let otherProgram: String? = "tidewire-bench"
}
