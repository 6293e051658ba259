/// Starts work beside the test on the main thread, which no test blocks. Views run models in the same way.
public func onMainThread(_ work: @escaping @MainActor @Sendable () async -> Void) -> Task<Void, Never> {
    Task(name: "beside the test", operation: work)
}

/// Waits until `holds` is true. Returns false after three minutes.
public func eventually(_ holds: @MainActor @Sendable () throws -> Bool) async rethrows -> Bool {
    for _ in 0..<3600 {
        if try await holds() { return true }
        try? await Task.sleep(for: .milliseconds(50))
    }
    return false
}
