import Bytes

/// Content of a row image after its values were removed from the log on demand.
///
/// The image keeps its length, so that nothing else in the log moves. It has the column count, each column as unknown,
/// and then this mark:
///
///     day u16 (since 1970) · 2 to 4 bytes of the hash of the row's key, as many as there is room for · zeros
///
/// A person who knows the row's key can thus see that the row existed, and since when its values are removed. The mark
/// also allows a guess of the key to be checked, but its few bytes match many keys.
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

    /// Reads the mark that follows the columns of an image. Nil if the image had no room for a mark.
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

    /// True if the mark may belong to the row with this key hash. It may, rarely, be true for another row. It is never
    /// false for the right one.
    public func fits(_ keyHash: UInt64) -> Bool { key == Self.bytes(of: keyHash, key.count) }

    /// Returns the first bytes of a row image of the given length whose values are removed. The rest of the image is
    /// zeros.
    public static func image(columns: Int, byteCount: Int, day: UInt16, keyHash: UInt64) -> [UInt8] {
        let room = byteCount - columnBytes(columns)
        precondition(room >= 0, "a column takes a byte at least")
        let mark = ForgottenMark(day: day, key: bytes(of: keyHash, min(mostKeyBytes, max(0, room - dayBytes))))
        return mark.image(columns: columns, room >= dayBytes + leastKeyBytes)
    }

    /// Returns the shortest row image that contains this mark.
    public func image(columns: Int) -> [UInt8] { image(columns: columns, true) }

    private func image(columns: Int, _ isMarked: Bool) -> [UInt8] {
        let count = [UInt8(truncatingIfNeeded: columns >> 8), UInt8(truncatingIfNeeded: columns)]
        let image = count + [UInt8](repeating: UInt8(ascii: "u"), count: columns)
        return isMarked ? image + [UInt8(day >> 8), UInt8(truncatingIfNeeded: day)] + key : image
    }
}

extension Change {
    /// Marks in the old and in the new image, if their values were removed on demand.
    public var forgottenMarks: (old: ForgottenMark?, new: ForgottenMark?) {
        guard isForgotten else { return (nil, nil) }
        var (was, now): (ForgottenMark?, ForgottenMark?) = (nil, nil)
        if let old { was = ForgottenMark(old) }
        if let new { now = ForgottenMark(new) }
        return (was, now)
    }
}
