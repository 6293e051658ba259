/// Error for refused bytes: a phrase that names the expected content, and the offset where the reader expected it.
public struct ByteError: Error, Sendable {
    /// Description of the expected content. It is a fixed phrase and never contains data.
    public let expected: StaticString
    public let offset: Int

    @inlinable
    public init(expected: StaticString, offset: Int) {
        self.expected = expected
        self.offset = offset
    }
}

extension ByteError: CustomStringConvertible {
    public var description: String { "expected \(expected) at byte \(offset)" }
}

/// Reader of numbers and spans from borrowed bytes, without copying. Every read checks for the end of the bytes, so
/// they may come directly from an untrusted peer.
///
/// A reader does not own the bytes and cannot outlive them.
public struct ByteReader: ~Escapable {
    @usableFromInline let bytes: RawSpan
    @usableFromInline var position: Int

    @inlinable
    @_lifetime(copy bytes)
    public init(_ bytes: RawSpan) {
        self.bytes = bytes
        self.position = 0
    }

    @inlinable public var offset: Int { position }
    @inlinable public var remaining: Int { bytes.byteCount &- position }
    @inlinable public var isAtEnd: Bool { position == bytes.byteCount }

    @inlinable
    @_lifetime(self: copy self)
    mutating func take(_ count: Int, _ expected: StaticString) throws(ByteError) -> Int {
        guard count >= 0, count <= bytes.byteCount &- position else {
            throw ByteError(expected: expected, offset: position)
        }
        let start = position
        position = start &+ count
        return start
    }

    @inlinable
    @_lifetime(self: copy self)
    mutating func load<T: FixedWidthInteger & BitwiseCopyable>(_ type: T.Type) throws(ByteError) -> T {
        let start = try take(MemoryLayout<T>.size, "a number")
        // SAFETY: every bit pattern is a valid integer, and the load itself checks its bounds.
        return unsafe bytes.unsafeLoadUnaligned(fromByteOffset: start, as: T.self)
    }

    // Big-endian: PostgreSQL's and WebSocket's order.
    @inlinable
    @_lifetime(self: copy self)
    public mutating func uint8() throws(ByteError) -> UInt8 { try load(UInt8.self) }

    @inlinable
    @_lifetime(self: copy self)
    public mutating func uint16() throws(ByteError) -> UInt16 { try load(UInt16.self).bigEndian }

    @inlinable
    @_lifetime(self: copy self)
    public mutating func uint32() throws(ByteError) -> UInt32 { try load(UInt32.self).bigEndian }

    @inlinable
    @_lifetime(self: copy self)
    public mutating func uint64() throws(ByteError) -> UInt64 { try load(UInt64.self).bigEndian }

    // Little-endian: the order of the hub's own files.
    @inlinable
    @_lifetime(self: copy self)
    public mutating func littleUInt16() throws(ByteError) -> UInt16 { try load(UInt16.self).littleEndian }

    @inlinable
    @_lifetime(self: copy self)
    public mutating func littleUInt32() throws(ByteError) -> UInt32 { try load(UInt32.self).littleEndian }

    @inlinable
    @_lifetime(self: copy self)
    public mutating func littleUInt64() throws(ByteError) -> UInt64 { try load(UInt64.self).littleEndian }

    /// Reads `count` numbers of 64 bits, little-endian.
    @inlinable
    @_lifetime(self: copy self)
    public mutating func littleUInt64s(_ count: Int) throws(ByteError) -> [UInt64] {
        guard count >= 0, count <= remaining / 8 else {
            throw ByteError(expected: "more numbers", offset: position)
        }
        let numbers = try span(count * 8)
        // SAFETY: `numbers` has eight bytes for each place, every bit pattern is a valid integer, and all places are
        // filled.
        return unsafe [UInt64](unsafeUninitializedCapacity: count) { room, filled in
            for place in 0..<count {
                let number = unsafe numbers.unsafeLoadUnaligned(
                    fromUncheckedByteOffset: place &* 8, as: UInt64.self)
                unsafe room.initializeElement(at: place, to: number.littleEndian)
            }
            filled = count
        }
    }

    /// Reads a number encoded as seven bits a byte, lowest bits first. Refuses an encoding
    /// that is longer than necessary.
    @inlinable
    @_lifetime(self: copy self)
    public mutating func varint() throws(ByteError) -> UInt64 {
        var value: UInt64 = 0
        var shift: UInt64 = 0
        while true {
            let byte = try load(UInt8.self)
            // The tenth byte has room for one bit.
            guard shift < 63 || byte <= 1, byte != 0 || shift == 0 else {
                throw ByteError(expected: "a number of at most 64 bits", offset: position)
            }
            value |= UInt64(byte & 0x7F) << shift
            if byte < 0x80 { return value }
            shift &+= 7
        }
    }

    /// Reads a signed number in zigzag encoding, in which small numbers of either sign are short.
    @inlinable
    @_lifetime(self: copy self)
    public mutating func zigzag() throws(ByteError) -> Int64 {
        let value = try varint()
        return Int64(bitPattern: value >> 1) ^ -Int64(bitPattern: value & 1)
    }

    /// Returns the next `count` bytes, borrowed.
    @inlinable
    @_lifetime(copy self)
    public mutating func span(_ count: Int) throws(ByteError) -> RawSpan {
        let start = try take(count, "more bytes")
        return bytes.extracting(start..<start &+ count)
    }

    @inlinable
    @_lifetime(self: copy self)
    public mutating func skip(_ count: Int) throws(ByteError) {
        _ = try take(count, "more bytes")
    }

    /// Moves the reader backward or forward to `offset`.
    @inlinable
    public mutating func seek(to offset: Int) {
        precondition(offset >= 0 && offset <= bytes.byteCount, "a place in the bytes")
        position = offset
    }

    /// Reads a C string: returns the bytes before the next zero byte, and skips the zero byte.
    @inlinable
    @_lifetime(copy self)
    public mutating func cString() throws(ByteError) -> RawSpan {
        var end = position
        let limit = bytes.byteCount
        while end < limit {
            // SAFETY: `end` is below `byteCount`; any byte is a valid UInt8.
            if unsafe bytes.unsafeLoad(fromByteOffset: end, as: UInt8.self) == 0 {
                let text = bytes.extracting(position..<end)
                position = end &+ 1
                return text
            }
            end &+= 1
        }
        throw ByteError(expected: "a string's terminating zero", offset: position)
    }

    /// Returns the bytes from `start` up to the reader's position.
    @inlinable
    @_lifetime(copy self)
    public func span(from start: Int) -> RawSpan { bytes.extracting(start..<position) }

    /// Returns all bytes that are not read yet.
    @inlinable
    @_lifetime(copy self)
    public mutating func rest() -> RawSpan {
        let start = position
        position = bytes.byteCount
        return bytes.extracting(start..<position)
    }

    @inlinable
    public func expectEnd() throws(ByteError) {
        guard isAtEnd else { throw ByteError(expected: "the end of the message", offset: position) }
    }
}
