import System

/// Runs `work` `count` times at once, each time on its own thread, and waits for all. A test that suspends would have
/// to wait for a thread of Swift's pool, and other tests block these threads for minutes.
public func together(_ count: Int, _ work: @escaping @Sendable (Int) -> Void) throws {
    let threads = try (0..<count).map { number in try BackgroundThread("together \(number)") { work(number) } }
    for thread in threads { thread.join() }
}
