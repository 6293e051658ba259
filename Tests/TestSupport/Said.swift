import Foundation
import System

/// Runs a program to its end, and returns its output. The function does not use Foundation's `Process`: in a test run
/// with hundreds of threads and descriptors, that class read beyond its memory and ended the whole run.
///
/// `code` is nil if a signal ended the program.
public func said(
    by words: [String], environment: [String: String] = [:], withErrors: Bool = false
) throws -> (output: String, code: Int32?) {
    let path = TemporaryDirectory.make("said") + "/output"
    let (output, nothing) = (try descriptor(path), try descriptor("/dev/null"))
    let ends = ChildProcess.Ends(
        input: nothing.fileDescriptor, output: output.fileDescriptor,
        errors: withErrors ? output.fileDescriptor : nothing.fileDescriptor)
    let ending = try withExtendedLifetime((output, nothing)) {
        try ChildProcess(words, ends: ends, environment: environment).wait()
    }
    let text = String(decoding: try Data(contentsOf: URL(fileURLWithPath: path)), as: UTF8.self)
    guard case .exited(let code)? = ending else { return (text, nil) }
    return (text, code)
}

private func descriptor(_ path: String) throws -> FileHandle {
    let number = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
    guard number >= 0 else { throw SystemError(operation: "open", subject: path, code: errno) }
    return FileHandle(fileDescriptor: number, closeOnDealloc: true)
}
