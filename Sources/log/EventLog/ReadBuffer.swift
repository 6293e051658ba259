import System

/// Buffer that holds one piece of a file at a time.
///
/// Files are read, not mapped: if a mapped file is truncated, a process that accesses the missing part is killed.
@safe
struct ReadBuffer: ~Copyable, @unchecked Sendable {
    // This is the only pointer to the memory, so the owner of the buffer owns the bytes.
    private var base: UnsafeMutableRawPointer
    private var capacity: Int
    private let usualCapacity: Int
    /// Position in the file of the first buffered byte.
    private var start: UInt64 = 0
    private var filled = 0

    init(capacity: Int) {
        // SAFETY: freed in `deinit` or replaced in `setCapacity`, each exactly once.
        unsafe base = UnsafeMutableRawPointer.allocate(byteCount: capacity, alignment: 64)
        self.capacity = capacity
        self.usualCapacity = capacity
    }

    deinit {
        // SAFETY: `base` is this buffer's own allocation.
        unsafe base.deallocate()
    }

    private mutating func setCapacity(_ bytes: Int) {
        // SAFETY: the old bytes are not needed any more: they are read again from the file.
        unsafe base.deallocate()
        unsafe base = UnsafeMutableRawPointer.allocate(byteCount: bytes, alignment: 64)
        capacity = bytes
        filled = 0
    }

    mutating func forget() { filled = 0 }

    /// True if the buffer has `count` bytes from `position` on.
    func holds(_ count: Int, at position: UInt64) -> Bool {
        position >= start && position + UInt64(count) <= start + UInt64(filled)
    }

    /// Returns the number of bytes that the buffer has from `position` on.
    func available(at position: UInt64) -> Int {
        position >= start && position <= start + UInt64(filled) ? Int(start + UInt64(filled) - position) : 0
    }

    /// Reads from `position` on: `wanted` bytes, or fewer if the file ends earlier, but never beyond `limit`.
    mutating func fill(
        from file: any StorageFile, at position: UInt64, wanted: Int, limit: UInt64
    ) throws(SystemError) {
        filled = 0
        start = position
        guard position < limit else { return }
        if wanted > capacity {
            setCapacity(wanted)
        } else if capacity > usualCapacity, wanted <= usualCapacity {
            setCapacity(usualCapacity)
        }
        let count = Int(min(UInt64(wanted), limit - position))
        assert(count <= capacity, "the buffer has room for what is read")
        // SAFETY: `count` is not more than `capacity`.
        filled = unsafe try file.read(into: UnsafeMutableRawBufferPointer(start: base, count: count), at: position)
    }

    /// Returns bytes of the buffer. The caller must have checked with `holds` that they are there.
    @_lifetime(borrow self)
    func bytes(_ count: Int, at position: UInt64) -> RawSpan {
        precondition(holds(count, at: position), "only bytes that were read can be looked at")
        // SAFETY: these bytes lie inside what was read, and the span cannot outlive the borrow.
        let span = unsafe RawSpan(_unsafeStart: base + Int(position - start), byteCount: count)
        return unsafe _overrideLifetime(span, borrowing: self)
    }

    /// Returns the header of the entry at this position, if there is one. The checksum is not checked.
    @inline(__always)
    func sighting(at position: UInt64) -> EntryHeader.Sighting {
        precondition(holds(EntryHeader.byteCount, at: position), "only bytes that were read can be looked at")
        // SAFETY: a whole header lies inside what was read.
        return unsafe EntryHeader.sighting(in: base + Int(position - start))
    }
}
