import System

/// Runs `work` that many times at once, each on its own thread, and waits for all. A test that suspends would wait for
/// the pool's threads, which other tests block for minutes.
public func together(_ count: Int, _ work: @escaping @Sendable (Int) -> Void) throws {
    let threads = try (0..<count).map { number in try BackgroundThread("together \(number)") { work(number) } }
    for thread in threads { thread.join() }
}
