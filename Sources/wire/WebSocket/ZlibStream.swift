import CZlib

/// Memory of a zlib stream. Its address never changes, because zlib stores the address.
@safe
final class ZlibStream {
    let pointer: UnsafeMutablePointer<z_stream>

    init() {
        // SAFETY: freed in `deinit`, by which time nobody else can hold it; initialised before anyone reads it.
        unsafe pointer = UnsafeMutablePointer.allocate(capacity: 1)
        unsafe pointer.initialize(to: z_stream())
    }

    deinit {
        // SAFETY: as above; what zlib allocated was given back by the owner.
        unsafe pointer.deinitialize(count: 1)
        unsafe pointer.deallocate()
    }

    /// Sets the bytes that zlib reads next. zlib does not write to them, although the pointer type would allow it.
    func setInput(_ bytes: UnsafeRawBufferPointer) {
        // SAFETY: only stores the address and its count; the caller ends the step while the bytes are borrowed.
        unsafe pointer.pointee.next_in = UnsafeMutablePointer(
            mutating: bytes.assumingMemoryBound(to: UInt8.self).baseAddress)
        unsafe pointer.pointee.avail_in = UInt32(bytes.count)
    }

    /// Sets the memory to which zlib writes next.
    func setOutput(_ room: UnsafeMutableRawBufferPointer) {
        // SAFETY: as above.
        unsafe pointer.pointee.next_out = room.assumingMemoryBound(to: UInt8.self).baseAddress
        unsafe pointer.pointee.avail_out = UInt32(room.count)
    }

    /// Clears input and output, so that no borrowed address outlives its step.
    func clear() {
        // SAFETY: plain stores into memory that this object owns.
        unsafe pointer.pointee.next_in = nil
        unsafe pointer.pointee.avail_in = 0
        unsafe pointer.pointee.next_out = nil
        unsafe pointer.pointee.avail_out = 0
    }

    // SAFETY: plain loads from memory that this object owns.
    var inputLeft: Int { Int(unsafe pointer.pointee.avail_in) }
    var roomLeft: Int { Int(unsafe pointer.pointee.avail_out) }

    /// True if the decompressor is between two blocks: bit 7 of zlib's `data_type`.
    var isBetweenBlocks: Bool {
        // SAFETY: as above.
        unsafe pointer.pointee.data_type & 128 != 0
    }
}
