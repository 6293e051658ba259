import System

/// Does something so many times at once, each on a thread of its own, to the end of all: a test that suspends would wait for
/// the threads of the pool, which others block for minutes.
public func together(_ count: Int, _ work: @escaping @Sendable (Int) -> Void) throws {
    let threads = try (0..<count).map { number in try BackgroundThread("together \(number)") { work(number) } }
    for thread in threads { thread.join() }
}
