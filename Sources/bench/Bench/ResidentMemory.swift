/// Resident memory of this process.
enum ResidentMemory {
    static var bytes: Int {
        let line = TextFile.line("VmRSS:", in: "/proc/self/status") ?? ""
        return (line.split(separator: " ").first.flatMap { Int($0) } ?? 0) << 10
    }
}
