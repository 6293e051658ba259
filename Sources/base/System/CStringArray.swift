import Glibc

/// C array of string pointers that ends with a null pointer. A nil string becomes a null pointer.
@safe
public final class CStringArray {
    /// Pointer for calls that need `char *const []`. It is valid while the array is alive.
    public let mutable: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
    private let count: Int

    public init(_ strings: [String?]) {
        // SAFETY: every place is initialised here, in the same order, and freed once in `deinit`.
        unsafe mutable = .allocate(capacity: strings.count + 1)
        count = strings.count
        for (index, string) in strings.enumerated() {
            unsafe (mutable + index).initialize(to: string.map { unsafe strdup($0) } ?? nil)
        }
        unsafe (mutable + strings.count).initialize(to: nil)
    }

    deinit {
        // SAFETY: strdup's memory, freed once; free(nil) does nothing.
        for index in 0..<count { unsafe free(mutable[index]) }
        unsafe mutable.deallocate()
    }

    /// Pointer for calls that need `const char *const *`. It is valid while the array is alive.
    public var constant: UnsafePointer<UnsafePointer<CChar>?> {
        // SAFETY: the two pointer types differ in constness alone.
        unsafe UnsafeRawPointer(mutable).assumingMemoryBound(to: UnsafePointer<CChar>?.self)
    }
}
