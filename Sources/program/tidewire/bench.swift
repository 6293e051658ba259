import Console

/// `tidewire bench`, which is a separate program, so that the hub does not contain the load generator.
struct BenchCommand: Command {
    let name = "bench"
    let summary = "Measure the hub on this machine, beside its baselines."
    let discussion = "Done by tidewire-bench, which takes everything after `tidewire bench`."
    let otherProgram: String? = "tidewire-bench"
}
