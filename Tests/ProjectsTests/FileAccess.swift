import Glibc

struct NoSuchFile: Error {}

/// Returns the access mode of a file, as the number that `chmod` accepts.
func accessMode(_ path: String) throws -> UInt32 {
    var status = stat()
    guard stat(path, &status) == 0 else { throw NoSuchFile() }
    return status.st_mode & 0o777
}
