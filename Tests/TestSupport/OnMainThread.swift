/// Starts work beside the test on the main thread, which no test blocks. Views use models in this way.
public func onMainThread(_ work: @escaping @MainActor @Sendable () async -> Void) -> Task<Void, Never> {
    Task(name: "beside the test", operation: work)
}

/// Waits for a condition that comes true by itself. Returns false if it is still false after three minutes.
public func eventually(_ holds: @MainActor @Sendable () throws -> Bool) async rethrows -> Bool {
    for _ in 0..<3600 {
        if try await holds() { return true }
        try? await Task.sleep(for: .milliseconds(50))
    }
    return false
}
