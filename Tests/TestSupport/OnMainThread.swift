/// Begins something beside the test, on the main thread, which nothing in tests blocks. What views do with models.
public func onMainThread(_ work: @escaping @MainActor @Sendable () async -> Void) -> Task<Void, Never> {
    Task(name: "beside the test", operation: work)
}

/// Waits for what comes about by itself; false when it has not within three minutes.
public func eventually(_ holds: @MainActor @Sendable () throws -> Bool) async rethrows -> Bool {
    for _ in 0..<3600 {
        if try await holds() { return true }
        try? await Task.sleep(for: .milliseconds(50))
    }
    return false
}
