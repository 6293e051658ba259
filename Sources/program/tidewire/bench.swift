import Console

/// `tidewire bench`, which is a program of its own: the hub does not carry what loads it.
struct BenchCommand: Command {
    let name = "bench"
    let summary = "Measure the hub on this machine, beside its baselines."
    let discussion = "Done by tidewire-bench, which takes everything after `tidewire bench`."
    let otherProgram: String? = "tidewire-bench"
}
