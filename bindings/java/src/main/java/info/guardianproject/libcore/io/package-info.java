/** What IOCipher's classes stood on, as far as apps use it. */
package info.guardianproject.libcore.io;
