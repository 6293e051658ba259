import Bytes

/// What is left of a row image whose values were removed from the log on demand.
///
/// The image keeps its length, so that nothing moves: its column count, every column as unknown, and behind them
///
///     day u16 (since 1970) · 2 to 4 bytes of the hash of the row's key, as many as there is room for · zeros
///
/// So somebody who knows the key can be told that there was something and since when there is nothing. Whoever guesses at
/// keys can check a guess by it; a few bytes fit many keys.
public struct ForgottenMark: Sendable, Hashable {
    public let day: UInt16
    public let key: [UInt8]

    public init(day: UInt16, key: [UInt8]) {
        self.day = day
        self.key = key
    }

    public init(day: UInt16, keyHash: UInt64) {
        self.init(day: day, key: Self.bytes(of: keyHash, Self.mostKeyBytes))
    }

    private static let dayBytes = 2
    private static let leastKeyBytes = 2
    private static let mostKeyBytes = 4

    private static func bytes(of hash: UInt64, _ count: Int) -> [UInt8] {
        (0..<count).map { UInt8(truncatingIfNeeded: hash >> (8 * UInt64($0))) }
    }

    /// The mark behind the columns of an image; nil where there was no room for one.
    public init?(_ image: borrowing Tuple) {
        let start = Self.columnBytes(image.columnCount)
        let room = image.bytes.byteCount - start
        guard room >= Self.dayBytes + Self.leastKeyBytes else { return nil }
        var key: [UInt8] = []
        for at in 0..<min(room - Self.dayBytes, Self.mostKeyBytes) {
            key.append(image.bytes.byte(start + Self.dayBytes + at))
        }
        self.init(day: UInt16(image.bytes.byte(start)) << 8 | UInt16(image.bytes.byte(start + 1)), key: key)
    }

    private static func columnBytes(_ columns: Int) -> Int { 2 + columns }

    /// Whether it may be of the row with this key; rarely wrong where it says so.
    public func fits(_ keyHash: UInt64) -> Bool { key == Self.bytes(of: keyHash, key.count) }

    /// The bytes that an image of that length begins with once it is forgotten; zeros follow.
    public static func image(columns: Int, byteCount: Int, day: UInt16, keyHash: UInt64) -> [UInt8] {
        let room = byteCount - columnBytes(columns)
        precondition(room >= 0, "a column takes a byte at least")
        let mark = ForgottenMark(day: day, key: bytes(of: keyHash, min(mostKeyBytes, max(0, room - dayBytes))))
        return mark.image(columns: columns, room >= dayBytes + leastKeyBytes)
    }

    /// An image that is no longer than it must be.
    public func image(columns: Int) -> [UInt8] { image(columns: columns, true) }

    private func image(columns: Int, _ isMarked: Bool) -> [UInt8] {
        let count = [UInt8(truncatingIfNeeded: columns >> 8), UInt8(truncatingIfNeeded: columns)]
        let image = count + [UInt8](repeating: UInt8(ascii: "u"), count: columns)
        return isMarked ? image + [UInt8(day >> 8), UInt8(truncatingIfNeeded: day)] + key : image
    }
}

extension Change {
    /// What its images say of their being forgotten: of the old one, and of the new one.
    public var forgottenMarks: (old: ForgottenMark?, new: ForgottenMark?) {
        guard isForgotten else { return (nil, nil) }
        var (was, now): (ForgottenMark?, ForgottenMark?) = (nil, nil)
        if let old { was = ForgottenMark(old) }
        if let new { now = ForgottenMark(new) }
        return (was, now)
    }
}
