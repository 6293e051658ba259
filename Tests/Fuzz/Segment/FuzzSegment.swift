import FuzzSupport
import TestSupport

@_cdecl("LLVMFuzzerInitialize")
public func initialize(_ count: UnsafeMutablePointer<CInt>, _ arguments: UnsafeRawPointer) -> CInt {
    writeSeeds([storedSegment()])
    return 0
}

/// Fuzz target of the event log. Input: the bytes of a segment file. A reader, recovery and verification then read
/// them.
@_cdecl("LLVMFuzzerTestOneInput")
public func test(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    fuzzSegment(input(start, count))
    return 0
}
