#if canImport(Glibc)
    import Glibc
#endif

/// A growing buffer that is written at its end and read as a whole.
///
/// One allocation lives as long as the writer: `removeAll` keeps it. Pass a writer `inout`: if it is stored as a class
/// property, every append pays for an exclusivity check.
@safe
public struct ByteWriter: ~Copyable {
    @usableFromInline var base: UnsafeMutableRawPointer
    @usableFromInline var capacity: Int
    @usableFromInline var used: Int

    public init(capacity: Int = 256) {
        let capacity = max(capacity, 16)
        // SAFETY: freed in `deinit`, replaced only by `grow`; a non-copyable owner frees it once.
        unsafe base = UnsafeMutableRawPointer.allocate(byteCount: capacity, alignment: 16)
        self.capacity = capacity
        self.used = 0
    }

    deinit {
        // SAFETY: `base` is this writer's own allocation.
        unsafe base.deallocate()
    }

    @inlinable public var count: Int { used }
    @inlinable public var isEmpty: Bool { used == 0 }

    /// Bytes written so far, borrowed until the next change of the writer.
    @inlinable public var bytes: RawSpan {
        @_lifetime(borrow self)
        get {
            // SAFETY: the first `used` bytes are initialised, and the span cannot outlive the borrow of `self`.
            let span = unsafe RawSpan(_unsafeStart: base, byteCount: used)
            return unsafe _overrideLifetime(span, borrowing: self)
        }
    }

    /// Removes all bytes and keeps the memory.
    @inlinable public mutating func removeAll() { used = 0 }

    /// Removes everything after the first `count` bytes.
    @inlinable public mutating func truncate(to count: Int) {
        precondition(count >= 0 && count <= used, "a buffer can only be truncated to a part of itself")
        used = count
    }

    /// Frees memory after a rare large message made the buffer larger than `limit`.
    public mutating func shrink(to limit: Int) {
        guard capacity > limit, used <= limit else { return }
        // SAFETY: `used` bytes fit in `limit`, and the old allocation is freed exactly once.
        let smaller = UnsafeMutableRawPointer.allocate(byteCount: max(limit, 16), alignment: 16)
        unsafe smaller.copyMemory(from: base, byteCount: used)
        unsafe base.deallocate()
        unsafe base = smaller
        capacity = max(limit, 16)
    }

    @usableFromInline @inline(never)
    mutating func grow(by count: Int) {
        let larger = max(capacity &* 2, used + count)
        // SAFETY: the new allocation holds at least `used + count` bytes; the old one is freed exactly once.
        let moved = UnsafeMutableRawPointer.allocate(byteCount: larger, alignment: 16)
        unsafe moved.copyMemory(from: base, byteCount: used)
        unsafe base.deallocate()
        unsafe base = moved
        capacity = larger
    }

    @inlinable
    public mutating func reserve(_ count: Int) {
        if capacity &- used < count { grow(by: count) }
    }

    @inlinable
    mutating func store<T: FixedWidthInteger & BitwiseCopyable>(_ value: T) {
        reserve(MemoryLayout<T>.size)
        // SAFETY: `reserve` made room for the value at `used`.
        unsafe base.storeBytes(of: value, toByteOffset: used, as: T.self)
        used &+= MemoryLayout<T>.size
    }

    @inlinable public mutating func append(_ byte: UInt8) { store(byte) }
    @inlinable public mutating func append(big value: UInt16) { store(value.bigEndian) }
    @inlinable public mutating func append(big value: UInt32) { store(value.bigEndian) }
    @inlinable public mutating func append(big value: UInt64) { store(value.bigEndian) }
    @inlinable public mutating func append(little value: UInt16) { store(value.littleEndian) }
    @inlinable public mutating func append(little value: UInt32) { store(value.littleEndian) }
    @inlinable public mutating func append(little value: UInt64) { store(value.littleEndian) }

    /// Appends a number encoded as seven bits a byte, lowest bits first.
    @inlinable
    public mutating func append(varint value: UInt64) {
        var rest = value
        while rest >= 0x80 {
            store(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        store(UInt8(truncatingIfNeeded: rest))
    }

    /// Appends a signed number in zigzag encoding, in which small numbers of either sign are short.
    @inlinable
    public mutating func append(zigzag value: Int64) {
        append(varint: UInt64(bitPattern: value << 1 ^ value >> 63))
    }

    /// Appends the first `count` bytes of a word in memory order. For short texts this avoids a call of memcpy.
    @inlinable
    public mutating func append(low word: UInt64, count: Int) {
        precondition(count >= 0 && count <= 8, "a word has eight bytes")
        reserve(8)
        // SAFETY: `reserve` made room for the whole word; what lies behind `count` is room that is not in use.
        unsafe base.storeBytes(of: word.littleEndian, toByteOffset: used, as: UInt64.self)
        used &+= count
    }

    @inlinable
    public mutating func append(_ span: RawSpan) {
        let length = span.byteCount
        reserve(length)
        // SAFETY: `reserve` made room for `length` bytes at `used`, and the span's memory is not ours.
        unsafe span.withUnsafeBytes { source in
            if let start = source.baseAddress { unsafe memcpy(base + used, start, length) }
        }
        used &+= length
    }

    /// Copies words of eight bytes from the front of the span until `isRefused` refuses one. Returns the bytes copied.
    @inlinable @inline(__always)
    mutating func appendWords(of span: RawSpan, until isRefused: (UInt64) -> Bool) -> Int {
        let length = span.byteCount
        reserve(length &+ 8)
        // Local copies, so that the compiler keeps these values in registers.
        // SAFETY: `reserve` made room for `length` bytes at `used`; every load lies within the span.
        let target = unsafe base + used
        var at = 0
        while at &+ 8 <= length {
            let word = unsafe span.unsafeLoadUnaligned(fromUncheckedByteOffset: at, as: UInt64.self)
            if isRefused(word.littleEndian) { break }
            unsafe target.storeBytes(of: word, toByteOffset: at, as: UInt64.self)
            at &+= 8
        }
        used &+= at
        return at
    }

    @inlinable
    public mutating func append(_ text: StaticString) {
        let length = text.utf8CodeUnitCount
        reserve(length)
        // SAFETY: a static string's UTF-8 lives as long as the program; room was reserved.
        unsafe memcpy(base + used, text.utf8Start, length)
        used &+= length
    }

    /// Appends a text. Not for frequent calls: literals use the `StaticString` overload, which needs no conversion.
    @_disfavoredOverload
    public mutating func append(_ text: String) {
        var text = text
        text.withUTF8 { utf8 in
            // SAFETY: the buffer is valid inside the closure; `append` copies it.
            unsafe append(UnsafeRawBufferPointer(utf8).bytes)
        }
    }

    public mutating func append(_ array: [UInt8]) {
        // SAFETY: any byte is a valid UInt8, and the span lives for the call.
        unsafe append(array.span.bytes)
    }

    /// Appends the number in decimal digits.
    @inlinable
    public mutating func append(decimal value: UInt64) {
        var value = value
        var length = 1
        var bound: UInt64 = 10
        while value >= bound {
            length &+= 1
            let (next, overflow) = bound.multipliedReportingOverflow(by: 10)
            if overflow { break }
            bound = next
        }
        reserve(length)
        var at = used &+ length
        used = at
        repeat {
            at &-= 1
            // SAFETY: `at` stays within the `length` bytes that were reserved.
            unsafe base.storeBytes(of: 48 &+ UInt8(truncatingIfNeeded: value % 10), toByteOffset: at, as: UInt8.self)
            value /= 10
        } while value > 0
    }

    @inlinable
    public mutating func append(decimal value: Int64) {
        if value < 0 { append(UInt8(ascii: "-")) }
        append(decimal: value.magnitude)
    }

    /// Overwrites four bytes written earlier, such as a length that was unknown when its place was reserved.
    @inlinable
    public mutating func set(little value: UInt32, at offset: Int) {
        precondition(offset >= 0 && offset &+ 4 <= used, "a length can only be set where bytes were written")
        // SAFETY: the precondition keeps the store inside the written bytes.
        unsafe base.storeBytes(of: value.littleEndian, toByteOffset: offset, as: UInt32.self)
    }

    /// Reserves `count` bytes at the end, where `fill` then writes. `fill` returns the number of bytes that it wrote.
    public mutating func append<Failure: Error>(
        upTo count: Int, _ fill: (UnsafeMutableRawBufferPointer) throws(Failure) -> Int
    ) throws(Failure) -> Int {
        reserve(count)
        // SAFETY: `reserve` made room for `count` bytes at `used`; what `fill` says it wrote is checked.
        let written = unsafe try fill(UnsafeMutableRawBufferPointer(start: base + used, count: count))
        precondition(written >= 0 && written <= count, "a reader wrote past the room it was given")
        used += written
        return written
    }

    /// Removes the first `count` bytes and moves the rest to the front.
    public mutating func dropFirst(_ count: Int) {
        precondition(count >= 0 && count <= used, "only written bytes can be dropped")
        guard count > 0 else { return }
        // SAFETY: source and destination lie inside the written bytes; memmove allows the overlap.
        unsafe memmove(base, base + count, used - count)
        used -= count
    }

    public func copied() -> [UInt8] {
        bytes.copied()
    }
}
