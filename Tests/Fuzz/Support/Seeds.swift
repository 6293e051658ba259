import Bytes

#if canImport(Glibc)
    import Glibc
#endif

/// Writes the seeds into the corpus directory that libFuzzer reads next (`TIDEWIRE_FUZZ_CORPUS`). Does nothing if it is
/// not set.
public func writeSeeds(_ seeds: [[UInt8]]) {
    guard let directory = getenv("TIDEWIRE_FUZZ_CORPUS").map({ String(cString: $0) }) else { return }
    for (number, seed) in seeds.enumerated() { write(seed, to: directory + "/seed-\(number)") }
}

private func write(_ bytes: [UInt8], to path: String) {
    guard let file = fopen(path, "wb") else { fatalError("cannot write \(path)") }
    precondition(fwrite(bytes, 1, bytes.count, file) == bytes.count, "a seed was not written")
    fclose(file)
}

/// Returns the fuzzer's input as a separate array, so that Swift traps a read past its end.
public func input(_ start: UnsafePointer<UInt8>?, _ count: Int) -> [UInt8] {
    Array(UnsafeBufferPointer(start: start, count: count))
}
