import Glibc
import Testing

/// SplitMix64 generator: the same seed gives the same numbers everywhere.
public struct SeededRandom: RandomNumberGenerator, Sendable {
    private var state: UInt64

    public init(seed: UInt64) { state = seed }

    @_disfavoredOverload public init(seed: Seed) { self.init(seed: seed.number) }

    public mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var value = state
        value = (value ^ value >> 30) &* 0xbf58_476d_1ce4_e5b9
        value = (value ^ value >> 27) &* 0x94d0_49bb_1331_11eb
        return value ^ value >> 31
    }

    /// Returns one of the choices; there must be at least one.
    public mutating func pick<Choice>(_ choices: [Choice]) -> Choice {
        choices[Int.random(in: 0..<choices.count, using: &self)]
    }
}

/// Argument of a seeded test. If the test fails, Swift Testing prints the argument: the command that repeats the test
/// with this seed.
public struct Seed: Sendable, ExpressibleByIntegerLiteral {
    public let number: UInt64
    /// File that contains the test, by which `swift test` finds the test.
    private let test: String

    public init(_ number: UInt64, of test: String = "") { (self.number, self.test) = (number, test) }

    public init(integerLiteral number: UInt64) { self.init(number) }
}

extension Seed: CustomStringConvertible, CustomTestStringConvertible {
    public var description: String { "\(number)" }

    public var testDescription: String { "\(number), again with SEED=\(number) swift test --filter \(test)" }
}

/// Returns the seeds of a seeded test: 1 to `count`, or the one of `SEED=… swift test`.
public func seeds(_ count: Int, file: String = #fileID) -> [Seed] {
    seeds((1...UInt64(count)).map { $0 }, file)
}

/// Returns a new random seed, or the one of `SEED=… swift test`.
public func newSeed(file: String = #fileID) -> [Seed] { seeds([UInt64.random(in: 0 ... .max)], file) }

private func seeds(_ usual: [UInt64], _ file: String) -> [Seed] {
    let given = getenv("SEED").flatMap { UInt64(String(cString: $0)) }
    let test = file.split(separator: "/").last.map(String.init) ?? file
    return (given.map { [$0] } ?? usual).map { Seed($0, of: test) }
}
