/// Starts work on the main thread, which no test blocks, while the test goes on. Views of apps run models on that
/// thread, too.
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
