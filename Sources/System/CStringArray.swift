import Glibc

/// Strings as C takes lists of them: an array of pointers that ends with a null one. Nil strings are null pointers.
@safe
public final class CStringArray {
    private let pointers: UnsafeMutableBufferPointer<UnsafeMutablePointer<CChar>?>

    public init(_ strings: [String?]) {
        // SAFETY: every place is initialised here, in the same order, and freed once in `deinit`.
        unsafe pointers = .allocate(capacity: strings.count + 1)
        for (index, string) in strings.enumerated() {
            unsafe (pointers.baseAddress! + index).initialize(to: string.map { unsafe strdup($0) } ?? nil)
        }
        unsafe (pointers.baseAddress! + strings.count).initialize(to: nil)
    }

    deinit {
        // SAFETY: strdup's memory, freed once; free(nil) does nothing.
        for index in unsafe pointers.indices { unsafe free(pointers[index]) }
        unsafe pointers.deallocate()
    }

    /// For calls that take `char *const []`. Valid while the array is alive.
    public var mutable: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?> {
        // SAFETY: `init` always allocates at least one place.
        unsafe pointers.baseAddress!
    }

    /// For calls that take `const char *const *`. Valid while the array is alive.
    public var constant: UnsafePointer<UnsafePointer<CChar>?> {
        // SAFETY: the two pointer types differ in constness alone.
        unsafe UnsafeRawPointer(mutable).assumingMemoryBound(to: UnsafePointer<CChar>?.self)
    }
}
