import Glibc

/// Runs the body with a new empty directory, which is removed afterwards.
public func withTemporaryDirectory<Result>(_ body: (String) throws -> Result) throws -> Result {
    var template = Array("/tmp/tidewire-test-XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else { throw TemporaryDirectoryError() }
    let path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    defer { removeDirectory(path) }
    return try body(path)
}

struct TemporaryDirectoryError: Error {}

public func currentProcessID() -> Int32 { getpid() }

private func removeDirectory(_ path: String) {
    if let stream = opendir(path) {
        while let entry = readdir(stream) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) { pointer in
                pointer.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            if name != "." && name != ".." { unlink(path + "/" + name) }
        }
        closedir(stream)
    }
    rmdir(path)
}
