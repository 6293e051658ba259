/// Search for a shorter script with the same failure: it removes steps as long as the script still fails.
struct Shrinking {
    private let seed: UInt64
    private let shape: Shape
    private let steps: [Step]
    /// Limit on attempts. Each attempt is a whole simulation.
    private static let mostTries = 400

    init(_ seed: UInt64, _ shape: Shape, _ steps: [Step]) {
        self.shape = shape
        self.seed = seed
        self.steps = steps
    }

    func run() -> (steps: [Step], complaints: [String]) {
        var (best, complaints) = (steps, [String]())
        if let (count, found) = failure(of: steps) {
            best = Array(steps.prefix(count))
            complaints = found
        }
        var (size, tries) = (max(1, best.count / 2), 0)
        while tries < Self.mostTries {
            var start = 0
            var hasShrunk = false
            while start < best.count, tries < Self.mostTries {
                var candidate = best
                candidate.removeSubrange(start..<min(best.count, start + size))
                tries += 1
                if let (count, found) = failure(of: candidate) {
                    best = Array(candidate.prefix(count))
                    complaints = found
                    hasShrunk = true
                } else {
                    start += size
                }
            }
            if size == 1, !hasShrunk { break }
            size = max(1, size / 2)
        }
        return (best, complaints)
    }

    /// Returns the number of steps before the failure, and the failure's complaints; nil if the script succeeds.
    private func failure(of steps: [Step]) -> (Int, [String])? {
        guard let simulation = try? Simulation(seed: seed, shape) else { return nil }
        defer { simulation.end() }
        // A last step makes all events arrive, because missing events are found only then.
        let last = Step(action: .settle, milliseconds: 10)
        let script = steps.last == last ? steps : steps + [last]
        let complaints = simulation.run(script).complaints
        return complaints.isEmpty ? nil : (min(simulation.stepsDone, steps.count), complaints)
    }
}
